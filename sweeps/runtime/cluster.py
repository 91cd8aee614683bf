"""Connection to a Ray cluster, or start of one on this machine, without Ray's own output."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from sweeps.config import SweepConfig
from sweeps.config.cluster import Cluster
from sweeps.errors import RayNotStarted, UserError
from sweeps.runtime.cluster_processes import OwnCluster, cluster_processes
from sweeps.runtime.environment import chosen_variables, setting_up
from sweeps.runtime.fork_server import ADDRESS, MAX_FOLDER, MODULES, RAY_MODULES, ForkServer, task_modules
from sweeps.runtime.node_resources import label, memory_of_node
from sweeps.runtime.process_limits import check_limits
from sweeps.runtime.start_watch import killed_if_ray_hangs

ROOM_TIMEOUT = "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"
"""Environment variable: seconds after which Ray Train gives up a placement group that finds no room and requests a new
one, endlessly."""
USER_VARIABLES = ("SWEEPS_CACHE", "SWEEPS_CACHE_GIB", "SWEEPS_CONFIG_MODULES")
"""Environment variables of this user that every process of a sweep receives."""
START_SCRIPT = Path(__file__).with_name("local_worker_script.py")
AGENT_SCRIPT = Path(__file__).with_name("local_agent_script.py")
DASHBOARD_WITHIN_S = 3.0
"""Maximum seconds to wait for the first answer of Ray's dashboard."""


@dataclass(frozen=True)
class Connection:
    """A cluster that this process has joined or started."""

    nodes: list[dict[str, float]]
    """Resources of each node."""
    dashboard: str | None
    """Address of the cluster's dashboard, if it has one."""


@contextlib.contextmanager
def connected(
    config: SweepConfig, *, code: Path | None = None, forks: ForkServer | None = None
) -> Iterator[Connection]:
    """Connect to the cluster, and disconnect at the end; a cluster that was started here then ends.

    Args:
        config: Provides ``cluster``.
        code: Archive that becomes the working folder of all processes, on a running cluster.
        forks: Fork server for the worker processes of a cluster that is started here.

    Raises:
        UserError: ``cluster.address`` does not answer, or this process has a session of Ray already.
    """
    with _quiet_libraries(), _connection(config, code, forks) as connection:
        yield connection


@contextlib.contextmanager
def _connection(config: SweepConfig, code: Path | None, forks: ForkServer | None) -> Iterator[Connection]:
    import ray

    from sweeps.compat.ray_core import keeping_handler_of_sigterm, listening_on_loopback, shut_down

    if ray.is_initialized():  # a second start fails, and what is done about that would end the user's session
        raise UserError(
            "Ray is already in use in this process, and a sweep starts or joins a cluster of its own: call "
            "ray.shutdown() first, which ends that session's actors and objects, or run the sweep in another process"
        )
    cluster, others = config.cluster, cluster_processes()
    key, address = "cluster.address", cluster.address
    if address == "auto":
        key, address = "RAY_ADDRESS", os.environ.get("RAY_ADDRESS", address)
    if address.startswith("ray://"):
        raise UserError(
            f"{key}={address}: is the address of Ray Client, which cannot run a sweep; give that of the cluster, "
            "HOST:6379, on one of its nodes, or use `submit --to ray`"
        )
    process = None if forks is None else psutil.Process(forks.process.pid)
    local = cluster.address == "local"
    environment, arguments = worker_environment(cluster), dict[str, Any]()
    if local:
        memory, objects = memory_of_node()
        arguments = {"num_cpus": cluster.num_cpus, "num_gpus": cluster.num_gpus, "include_dashboard": False}
        arguments |= {"_memory": memory, "object_store_memory": objects}
        if forks is not None:
            environment[ADDRESS] = forks.address
    else:
        folder = str(Path.cwd()) if code is None else None
        set_up = setting_up(chosen_variables(cluster.env, os.environ), folder)
        arguments["runtime_env"] = {"env_vars": environment, "worker_process_setup_hook": set_up}
        if code is not None:
            arguments["runtime_env"]["working_dir"] = str(code)
    try:
        # The processes that Ray starts inherit our environment. A runtime environment would have the same effect, but
        # then the processes that Ray keeps ready for the first actors could not be used.
        with (
            _environment(environment if local else {}),
            listening_on_loopback(enabled=local),
            keeping_handler_of_sigterm(),
        ):
            start = partial(
                ray.init, address=cluster.address, log_to_driver=False, logging_level=logging.CRITICAL, **arguments
            )
            context = _started_here(start, process) if local else start()
    except (ConnectionError, ValueError, RuntimeError) as error:  # nothing answers, or the address has no known form
        raise UserError(
            f"cluster.address={cluster.address}: no Ray cluster answers there ({str(error).splitlines()[0]}); "
            "start one with `ray start --head`, or use cluster.address=local"
        ) from None
    own = OwnCluster(others, process)
    try:
        yield Connection(alive_nodes(), answering_dashboard(getattr(context, "dashboard_url", None)))
    finally:
        if own.lost() is not None:
            own.kill()  # Ray would wait for answers that never come
        shut_down()
        own.kill_agents()


def fork_server(config: SweepConfig) -> contextlib.AbstractContextManager[ForkServer | None]:
    """Return a context with the fork server for a sweep's cluster; with None on a running cluster, or if a fork server
    is impossible or turned off."""
    is_possible = sys.platform == "linux" and len(tempfile.gettempdir()) <= MAX_FOLDER
    if config.cluster.address != "local" or not is_possible or os.environ.get(ADDRESS) == "":
        return contextlib.nullcontext()
    environment = {**worker_environment(config.cluster), **os.environ}
    return ForkServer((*MODULES, *task_modules(config)), RAY_MODULES, environment)


def _is_of_token(file: Any) -> bool:
    """Whether an error's file is that of Ray's token, or a folder of it."""
    home = Path.home()
    return isinstance(file, str) and (Path(file) == home or Path(file).is_relative_to(home / ".ray"))


@contextlib.contextmanager
def _hangups_blocked() -> Iterator[None]:
    """Let the processes that are started meanwhile survive the end of the terminal: the driver, which hears of it, too,
    ends them after the trials have saved their state. Ray does the same for Ctrl-C."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _started_here(start: Callable[[], Any], forks: psutil.Process | None = None) -> Any:
    """Start Ray on this machine without the processes that a sweep does not use; if that fails, in the usual way. The
    first start may fail because Ray's processes wait only some seconds for each other, which is too short on a busy
    machine, or because another program has taken a port in the meantime.

    Raises:
        RayNotStarted: Ray failed to start twice.
        UserError: It would not start with a limit of this process, or with a folder.
    """
    from sweeps.compat.ray_core import forget_token, shut_down
    from sweeps.compat.ray_head_node import lean_head_node

    check_limits()
    failure, others = "", cluster_processes()
    for lean in (True, False):
        forget_token()
        try:
            with (
                lean_head_node(START_SCRIPT, AGENT_SCRIPT) if lean else contextlib.nullcontext(),
                killed_if_ray_hangs(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()),
                _hangups_blocked(),
            ):
                return start()
        except BaseException as error:  # Ray raises several, some of them plain `Exception`; or a signal came
            OwnCluster(others, forks).kill()
            shut_down()
            if not isinstance(error, Exception):
                raise
            if isinstance(error, OSError) and _is_of_token(error.filename):
                raise UserError(
                    f"HOME={Path.home()}: Ray cannot keep its token there ({error.strerror}); set HOME to a folder "
                    "that can be written, or RAY_AUTH_TOKEN=TOKEN with 32 or more random characters"
                ) from None
            lines = str(error).strip().splitlines() or [type(error).__name__]
            failure = "; ".join(dict.fromkeys((lines[0], lines[-1])))  # Ray puts the cause at the end
            if "AF_UNIX path length" in failure:
                name = "RAY_TMPDIR" if "RAY_TMPDIR" in os.environ else "TMPDIR"
                raise UserError(
                    f"{name}={os.environ.get(name)}: is too long for the sockets that Ray makes below it; set it to "
                    f"a folder with a short name, as in {name}=/tmp"
                ) from None
    raise RayNotStarted(
        f"cluster.address=local: Ray failed twice to start on this machine ({failure}); check whether it is out of "
        "memory or of space for temporary files, may not write them, or is too busy, and run the command again"
    )


def answering_dashboard(address: str | None) -> str | None:
    """Return the dashboard's URL, or None if it does not answer. A cluster may name an address although it was
    installed without ``ray[default]`` or its dashboard has died.

    Args:
        address: ``host:port`` as Ray names it, or ``RAY_OVERRIDE_DASHBOARD_URL`` without its protocol; None for a
            client's connection.
    """
    if not address:
        return None
    try:
        host = urlsplit(f"//{address}").netloc
        with contextlib.closing(HTTPConnection(host, timeout=DASHBOARD_WITHIN_S)) as connection:
            connection.request("GET", "/")
            connection.getresponse()  # any status, also one that asks for a token
    except (OSError, HTTPException):
        return None
    return f"http://{address}"


def alive_nodes() -> list[dict[str, float]]:
    """Return the resources and labels of each node of the connected cluster."""
    return [_with_labels(node["Resources"], node) for node in nodes_of_ray()]


def free_nodes() -> list[dict[str, float]]:
    """Return the unreserved resources and the labels of each node of the connected cluster."""
    from sweeps.compat.ray_core import unreserved_resources

    left = unreserved_resources()
    return [_with_labels(left.get(node["NodeID"], {}), node) for node in nodes_of_ray()]


def nodes_of_ray() -> list[dict[str, Any]]:
    """Return the nodes of the connected cluster that are alive, as Ray describes them."""
    import ray

    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def _with_labels(resources: Mapping[str, float], node: Mapping[str, Any]) -> dict[str, float]:
    labels = {label(name, value): math.inf for name, value in node.get("Labels", {}).items()}
    return {name: float(amount) for name, amount in resources.items()} | labels


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside a ``with`` block, except those that are already set."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def worker_environment(cluster: Cluster) -> dict[str, str]:
    """Return the environment of every process that Ray starts for a sweep."""
    environment = {
        # Interval at which Train's controller polls its workers; the default of 2 s delays the end of every trial.
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
        ROOM_TIMEOUT: os.environ.get(ROOM_TIMEOUT, "30"),
        "RAY_TRAIN_METRICS_ENABLED": "0",
        # The output of workers goes to the log files of their trial, and not into Ray's session as well.
        "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
        "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING": "0",
        "RAY_CHDIR_TO_TRIAL_DIR": "0",  # workers stay in the working folder, where data.path=texts.jsonl is
        "TORCH_FR_BUFFER_SIZE": "2000",  # collective operations that torch's flight recorder keeps, for hangs
        "TOKENIZERS_PARALLELISM": "false",  # avoids a warning about forks in every worker
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        # A cluster that is already running has not inherited this user's settings of the cache for tokenized data.
        **{name: os.environ[name] for name in USER_VARIABLES if name in os.environ},
    }
    if cluster.address == "local":
        from sweeps.compat.ray_core import LISTEN_ON_ALL

        # Ray's processes and workers communicate over loopback.
        environment |= {LISTEN_ON_ALL: "0", "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo"}
        # This machine is not preempted: without the watcher there is one process less for each worker group.
        environment["RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"] = "0"
        environment["RAY_preload_python_modules"] = "sweeps.runtime.preloaded"
        # When memory runs out, Ray first kills actors that it can restart, so the sweep's broker, again and again. The
        # kernel kills the largest process instead, which is a worker; the killed trial is retried.
        environment["RAY_memory_monitor_refresh_ms"] = "0"
    return environment


@contextlib.contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Turn off the tables, hints and warnings of Ray, Tune and Optuna inside the block: the sweep shows its own
    progress. After it they are as before, for what a notebook does with these libraries itself."""
    quiet = {
        "RAY_AIR_NEW_OUTPUT": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of actors that are given up, in a sweep that ends with a message
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # no CSV, JSON and TensorBoard copies of what MLflow has
        "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # the trainable checks, and lists the reported metrics
        "TUNE_WARN_THRESHOLD_S": "60",
        "TUNE_RESULT_BUFFER_LENGTH": "1",
        "TUNE_GLOBAL_CHECKPOINT_S": "inf",  # `resume` needs no copies of Tune's state
        # At its end the driver reports its last tasks to Ray; if Ray is gone, it would wait 5 s for an answer.
        "RAY_task_events_shutdown_flush_timeout_ms": "500",
    }
    from sweeps.compat.ray_core import logging_instead_of_printing

    with _environment(quiet), logging_instead_of_printing():  # ray reads some when it is imported
        loggers = [logging.getLogger(name) for name in ("ray", "ray.tune", "ray.train", "optuna")]
        levels = [each.level for each in loggers]
        try:
            for each in loggers:
                each.setLevel(logging.CRITICAL)  # tracebacks of failed trials, too
            yield
        finally:
            for each, level in zip(loggers, levels, strict=True):
                # Optuna sets its own when it is imported, which may have been in the block.
                is_new = each.name == "optuna" and level == logging.NOTSET and "optuna" in sys.modules
                each.setLevel(logging.INFO if is_new else level)
