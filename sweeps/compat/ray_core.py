"""Private names of Ray Core (2.60)."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

LISTEN_ON_ALL = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Environment variable of Ray that decides whether a local cluster listens on all addresses; 0 limits it to loopback,
the default on macOS and Windows."""
NO_JOB = "ffffffff"
"""``RAY_JOB_ID`` of a worker process that any job may use. Ray reads the variable when it is loaded."""


@contextlib.contextmanager
def listening_on_loopback(*, enabled: bool) -> Iterator[None]:
    """Make a cluster that starts inside the block listen only on loopback if ``LISTEN_ON_ALL`` is 0.

    Ray reads the variable when it is imported, which a notebook may have done long before."""
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    if enabled and os.environ.get(LISTEN_ON_ALL) == "0":
        ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def keeping_handler_of_sigterm() -> Iterator[None]:
    """Keep the process's handler of SIGTERM, which ``ray.init`` would replace. Ray's handler in Python exits wherever
    the main thread is, even inside a fork that holds logging's lock, and then waits for that lock forever. Its handler
    in C++ aborts the process after some seconds if the main thread still waits for Ray to start."""
    from ray._private import utils

    set_handler = utils.set_sigterm_handler
    handler, in_main = signal.getsignal(signal.SIGTERM), threading.current_thread() is threading.main_thread()
    if handler is not signal.SIG_DFL:
        utils.set_sigterm_handler = lambda _: None
    if handler is not None and in_main:
        install_handlers_of_cpp()  # which Ray does only once
        signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        utils.set_sigterm_handler = set_handler


def shut_down() -> None:
    """Disconnect from Ray, and keep the process's handler of SIGTERM, instead of which Ray's C++ sets the system's."""
    import ray

    ray.shutdown()
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def size_of_object_store(available: int) -> int:
    """Return the bytes that a node with this much memory reserves for its objects."""
    from ray._private.utils import resolve_object_store_memory

    return resolve_object_store_memory(available)


def install_handlers_of_cpp() -> None:
    """Let Ray's C++ install its handlers of signals, which print where a process crashed."""
    import ray._raylet

    library = ctypes.CDLL(ray._raylet.__file__)
    with contextlib.suppress(AttributeError):  # a release without it: a rare abort is better than no start
        # RayLog::InstallFailureSignalHandler(const char *argv0, bool call_previous_handler)
        library._ZN3ray6RayLog27InstallFailureSignalHandlerEPKcb(None, True)  # noqa: FBT003


def forget_token() -> None:
    """Let this process read the token of Ray's authentication again from the environment or the home folder.

    Ray caches the token when the process joins its first cluster, while the processes of a new cluster read the current
    one: if it has changed in between, the cluster would reject this process.
    """
    from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined] # compiled

    AuthenticationTokenLoader.instance().reset_cache()


def groups_without_nodes() -> int:
    """Return the number of this job's placement groups that are not placed yet. Ray's public table lists those of all
    jobs, without naming the job."""
    return sum(group.state == group.PENDING for group in _own_groups())


def remove_orphaned_groups() -> None:
    """Remove this job's placement groups whose actor is dead, which Ray would keep until the job ends."""
    from ray import ActorID, PlacementGroupID
    from ray.util.placement_group import PlacementGroup, remove_placement_group

    driver = ActorID.nil().binary()
    for group in _own_groups():
        is_orphan = group.creator_actor_dead and group.creator_actor_id != driver
        if is_orphan and group.state != group.REMOVED:
            remove_placement_group(PlacementGroup(PlacementGroupID(group.placement_group_id)))


def _own_groups() -> Iterator[Any]:
    import ray
    from ray._private.state import state
    from ray.core.generated.gcs_pb2 import PlacementGroupTableData  # type: ignore[attr-defined]

    own = ray.get_runtime_context().get_job_id()
    for group in state._connect_and_get_accessor().get_placement_group_table():
        data = PlacementGroupTableData.FromString(group)
        if data.creator_job_id.hex() == own:
            yield data


def unreserved_resources() -> dict[str, dict[str, float]]:
    """Return each node's resources that neither workers nor placement groups have reserved, by the node's id; full
    nodes are left out."""
    from ray._private.state import available_resources_per_node

    resources: dict[str, dict[str, float]] = available_resources_per_node()  # type: ignore[no-untyped-call]
    return resources


def draining_nodes() -> dict[str, float | None]:
    """Return the nodes that will leave the cluster, as announced by a cloud, Kubernetes or a person: the Unix time at
    which each one ends, by id; None if the time is unknown."""
    from ray._private.state import state

    deadlines: dict[str, int] = state.get_draining_nodes()
    return {node: milliseconds / 1000 if milliseconds else None for node, milliseconds in deadlines.items()}


@contextlib.contextmanager
def logging_instead_of_printing() -> Iterator[None]:
    """Redirect what Ray prints to stdout inside the block, such as a paragraph for every dead worker, to its logger at
    DEBUG."""
    from ray._private import worker

    before, worker.print_to_stdstream = worker.print_to_stdstream, _log
    try:
        yield
    finally:
        worker.print_to_stdstream = before


def _log(data: Any, ignore_prefix: bool) -> None:  # noqa: ARG001 - the signature of the function that it replaces
    for line in data["lines"]:
        logging.getLogger("ray").debug(line)


@contextlib.contextmanager
def defining_actors_before_forks() -> Iterator[None]:
    """Give classes of actors that are defined inside the block identifiers from the operating system.

    Ray's own generator of random identifiers has a state from its first use on, which forks of the process would share.
    """
    import ray

    module: Any = ray.actor
    module.ActorClassID = SimpleNamespace(from_random=lambda: ray.ActorClassID(os.urandom(ray.ActorClassID.size())))
    try:
        yield
    finally:
        module.ActorClassID = ray.ActorClassID


def forks_draw_other_ids() -> bool:
    """Whether two forks of this process draw different random identifiers of Ray."""
    import ray

    drawn = []
    for _ in range(2):
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.write(writing, ray.ObjectID.from_random().binary())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as told:
            drawn.append(told.read())
    return drawn[0] != drawn[1]
