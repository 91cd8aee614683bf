"""Spare processes: worker processes that are started in advance, so that a trial whose workers died trains again
sooner.

A new process needs seconds to import torch and Ray Train before it can train. Once a trial of a sweep has lost its
workers, or from the beginning if every trial has new processes, each node keeps as many idle processes as a trial has
workers there, with the imports done. Ray gives them to the next worker group, and others are started in their place.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sweeps.compat.cuda_driver import NVML_CHECK, initialized_gpus

IDLE_S = 1.0
"""Seconds after its start at which a process that is still unused becomes a spare one."""
REPLACED_AFTER_S = 2.0
"""Seconds after the start of a worker group until its used spare processes are replaced: until it trains, the group
itself needs the cores."""
LEARNED_AFTER_S = 10.0
"""Seconds after the start of a worker group until the modules that it has imported are collected."""
LOOKS_EVERY_S = 2.0
STARTED_WITHIN_S = 10.0
"""Seconds after which spare processes are requested again if none has started."""
TOGETHER_S = 2.0
"""Seconds within which processes report that they have started, if their node starts them at the same time."""
READY_WITHIN_S = 30.0
"""Maximum seconds to wait for spare processes into which a trial will grow."""
IMPORTS = (
    "sweeps.runtime.worker_loop",
    "sweeps_train.loop",
    "ray.train.v2.api.config",
    "ray.train.v2._internal.execution.worker_group.worker",
    "ray.train.torch",
)
"""Modules whose import takes every worker seconds."""
LIBRARIES = {"accelerate", "datasets", "lightgbm", "lightning", "pandas", "peft", "pyarrow", "scipy", "sklearn"}
LIBRARIES |= {"sweeps_train", "tokenizers", "torch", "torchvision", "transformers", "xgboost"}
"""Packages whose modules spare processes import if a trial's workers have imported them; importing a user's own modules
could have any effect."""

Place = tuple[str, str]
"""Id of a node, and a runtime environment as Ray serializes it: only actors with an equal environment get the place's
spare processes."""


@dataclass(frozen=True)
class ProcessOrigin:
    """Place of a worker's process, and whether it was started in advance."""

    place: Place
    was_spare: bool


class SpareProcesses:
    """Bookkeeping of spare processes in the broker."""

    def __init__(self) -> None:
        self._kept: Counter[Place] = Counter()
        self._groups: dict[str, Sequence[ProcessOrigin]] = {}
        """Processes of the worker groups that have started, by slot."""
        self._are_wanted = False

    def replace(self, slot: str, workers: Sequence[ProcessOrigin], *, wanted: bool) -> dict[Place, int]:
        """Register a worker group that has started, and return the number of spare processes to start for it.

        Args:
            slot: Slot of the group.
            workers: Processes of the group.
            wanted: Whether spare processes are to be kept from now on, if they are not already.

        Returns:
            Number of spare processes to start.
        """
        self._groups[slot] = workers
        self._are_wanted |= wanted
        used = Counter(worker.place for worker in workers if worker.was_spare)
        missing: dict[Place, int] = {}
        for place, number in Counter(worker.place for worker in workers).items():
            # Spare processes that were there, and that Ray did not use, have ended.
            all_used = used[place] >= min(self._kept[place], number)
            self._kept[place] = max(0, self._kept[place] - used[place]) if all_used else 0
            if self._are_wanted:
                missing |= self._fill(place, number)
        return missing

    def prepare(self, slot: str, num_workers: int, free: Mapping[str, int]) -> dict[Place, int]:
        """Return the number of spare processes to start for a trial that is about to get more workers.

        Args:
            slot: The trial's current slot.
            num_workers: Number of the trial's workers after the change.
            free: Number of additional workers for which each node has room, by its id. Further workers are expected on
                the current nodes.
        """
        workers = self._groups.get(slot, ())
        if not workers:
            return {}
        present = Counter(worker.place for worker in workers)
        environment = workers[0].place[1]
        wanted = present.copy()
        for node in sorted(free, key=lambda each: -present[each, environment]):
            wanted[node, environment] += min(free[node], num_workers - wanted.total())
        missing: dict[Place, int] = {}
        for place, number in wanted.items():
            more = math.ceil((num_workers - wanted.total()) * present[place] / len(workers))
            missing |= self._fill(place, number + more)
        return missing

    def forget(self, slot: str) -> None:
        """Forget a worker group that has ended."""
        self._groups.pop(slot, None)

    def _fill(self, place: Place, number: int) -> dict[Place, int]:
        missing = number - self._kept[place]
        self._kept[place] = max(number, self._kept[place])
        return {place: missing} if missing > 0 else {}


class _Idle:
    """State of this process as a spare process."""

    was_spare = False
    tried: ClassVar[set[str]] = set()
    """Modules whose import was started."""


def import_when_idle() -> None:
    """Do the imports of a worker in a thread of a new process, if spare processes are expected and this one is still
    unused after ``IDLE_S`` seconds. Until it is used, it also imports the modules of other workers."""
    threading.Thread(target=_import_when_idle, name="spare-process", daemon=True).start()


def _import_when_idle() -> None:
    time.sleep(IDLE_S)
    from sweeps.compat.ray_processes import imports, is_idle, tell

    # After an error, the process does its imports only when it is used, as other processes do.
    with contextlib.suppress(Exception):
        while is_idle() and (learned := imports()) is not None:
            if initialized_gpus() is not None:
                return  # a task has run here
            if not _Idle.was_spare:
                _Idle.was_spare = True
                tell("started")
            for name in (*IMPORTS, *learned):
                if is_idle() and name not in _Idle.tried:
                    _import(name)
            if is_idle() and initialized_gpus() is not None:
                os._exit(0)  # it would see all GPUs of the node, and not those that Ray gives it
            tell("ready")
            time.sleep(LOOKS_EVERY_S)


def _import(name: str) -> None:
    _Idle.tried.add(name)
    is_set = NVML_CHECK in os.environ
    os.environ.setdefault(NVML_CHECK, "1")
    try:
        with contextlib.suppress(Exception):  # some names are not modules with a file
            importlib.import_module(name)
    finally:
        if not is_set:
            os.environ.pop(NVML_CHECK, None)


def imported_libraries() -> list[str]:
    """Return the names of the modules that this worker has imported and other workers may need."""
    return [name for name in [*sys.modules] if name.partition(".")[0] in LIBRARIES]


def take_resources() -> None:
    """Make torch use the cores and GPUs that Ray has reserved: spare processes and forks imported torch before these
    were known.

    Raises:
        RuntimeError: An unfinished import has already initialised the GPUs.
    """
    if "torch" in sys.modules and (threads := os.environ.get("OMP_NUM_THREADS", "")).isdigit():
        sys.modules["torch"].set_num_threads(int(threads))
    if not _Idle.was_spare:
        return
    reserved, seen = os.environ.get("CUDA_VISIBLE_DEVICES"), initialized_gpus()
    if None not in (reserved, seen) and seen != len([each for each in str(reserved).split(",") if each]):
        raise RuntimeError(
            f"this process, which was started in advance, sees {seen} GPUs instead of {reserved or 'none'}"
        )


def origin() -> ProcessOrigin:
    """Return the origin of this worker's process."""
    import ray

    context: Any = ray.get_runtime_context()
    return ProcessOrigin((context.get_node_id(), context.get_runtime_env_string()), _Idle.was_spare)


def keep_spares(broker: Any, slot: str, actors: Sequence[Any], *, always: bool) -> None:
    """Start the spare processes that a worker group needs, in a thread, so that training does not wait.

    Args:
        broker: A ``WorkersSide``, which counts the spare processes.
        slot: The group's slot.
        actors: Workers of the group.
        always: Whether to keep spare processes even if no trial has lost its workers yet.
    """
    threading.Thread(target=_keep_spares, args=(broker, slot, actors, always), name="keep-spares", daemon=True).start()


def _keep_spares(broker: Any, slot: str, actors: Sequence[Any], always: bool) -> None:
    import ray

    from sweeps.compat.ray_processes import set_imports
    from sweeps.compat.ray_train_workers import execute

    # Workers, a node and the whole sweep may end at any time. The next group finds the spare processes missing.
    with contextlib.suppress(ray.exceptions.RayError, LookupError, ConnectionError):
        origins = ray.get([execute(actor, origin) for actor in actors])
        missing = broker.spares_to_start(slot, origins, always)
        if missing:
            time.sleep(REPLACED_AFTER_S)
            start_spares(missing)
            time.sleep(LEARNED_AFTER_S)
            set_imports(ray.get(execute(actors[0], imported_libraries)))


def start_spares(missing: Mapping[Place, int]) -> None:
    """Start spare processes. A node that already starts processes drops some requests, which are then repeated.

    Args:
        missing: Number of spare processes to start, by place.

    Raises:
        LookupError: A node has left the cluster.
        ConnectionError: A node does not answer.
    """
    from sweeps.compat.ray_processes import start_idle_processes, told

    wanted = {place: told("started", place[0]) + number for place, number in missing.items()}
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        starting = {place: number - told("started", place[0]) for place, number in wanted.items()}
        if max(starting.values(), default=0) <= 0:
            return
        for (node_id, runtime_env), number in starting.items():
            if number > 0:
                start_idle_processes(number, node_id, runtime_env)
        _wait_for_starts(wanted)


def _wait_for_starts(wanted: Mapping[Place, int]) -> None:
    """Wait until the wanted number of processes has started, or some have and no more follow; at most
    ``STARTED_WITHIN_S``."""
    from sweeps.compat.ray_processes import told

    nodes, total = {node_id for node_id, _ in wanted}, sum(wanted.values())
    began = changed = time.monotonic()
    first = before = sum(told("started", node) for node in nodes)
    while before < total and time.monotonic() - began < STARTED_WITHIN_S:
        time.sleep(0.2)
        started = sum(told("started", node) for node in nodes)
        if started != before:
            before, changed = started, time.monotonic()
        elif started > first and time.monotonic() - changed > TOGETHER_S:
            return


def start_spares_and_wait(missing: Mapping[Place, int], worker: Any) -> None:
    """Start spare processes, and wait until they have imported the modules of a worker; at most ``READY_WITHIN_S``.

    Args:
        missing: Number of spare processes to start, by place.
        worker: Actor of the worker, which trains.

    Raises:
        LookupError: A node has left the cluster.
        ConnectionError: A node does not answer.
    """
    import ray

    from sweeps.compat.ray_processes import set_imports, told
    from sweeps.compat.ray_train_workers import execute

    set_imports(ray.get(execute(worker, imported_libraries)))
    wanted = {node_id: told("ready", node_id) + number for (node_id, _), number in missing.items()}
    deadline = time.monotonic() + READY_WITHIN_S
    start_spares(missing)
    while any(told("ready", node) < number for node, number in wanted.items()) and time.monotonic() < deadline:
        time.sleep(0.2)
