"""The Ray cluster: what it has, how many trials fit, and a quiet connection to it."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from sweeps.config import SweepConfig
from sweeps.config.execution import Scaling
from sweeps.errors import DoesNotFit, UserError

MIB = 2**20
Resources = Mapping[str, float]


LABEL = "label:"
DASHBOARD_WITHIN_S = 3.0
"""For the first answer of Ray's dashboard."""


def label(name: str, value: str) -> str:
    """A node's label, among its resources."""
    return f"{LABEL}{name}={value}"


def accelerator(kind: str) -> str:
    """Ray's name for the resource that nodes with such GPUs have."""
    return f"accelerator_type:{kind}"


@dataclass(frozen=True)
class Fit:
    """What one trial needs, and how many of them run at once."""

    use_gpu: bool
    per_worker: dict[str, float]
    num_workers: int
    concurrent: int

    def describe(self) -> str:
        needs = ", ".join(f"{amount:g} {name}" for name, amount in self.per_worker.items())
        return f"{self.num_workers} workers of {needs}; {self.concurrent} at once"


def local_resources(config: SweepConfig) -> dict[str, float]:
    """What a Ray cluster started here will have; known without asking Ray."""
    resources = {"CPU": float(config.cluster.num_cpus or os.cpu_count() or 1)}
    gpus = config.cluster.num_gpus if config.cluster.num_gpus is not None else _count_gpus()
    wanted = config.scaling.accelerator_type  # of which kind they are is for Ray to find out
    of_kind = {accelerator(wanted): float(gpus)} if wanted and gpus else {}
    return resources | ({"GPU": float(gpus)} if gpus else {}) | of_kind


def _count_gpus() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([device for device in visible.split(",") if device.strip() and device.strip() != "-1"])
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def fit(config: SweepConfig, scalings: Sequence[Scaling], nodes: Sequence[Resources]) -> Fit:
    """How many trials run at once on these nodes.

    Args:
        config: The sweep's.
        scalings: Of every kind of trial that the space can make; the largest one counts.
        nodes: Resources of each node.

    Raises:
        DoesNotFit: Not even one trial could ever be placed.
    """
    fits = [_fit_one(scaling, nodes) for scaling in scalings]
    tightest = min(fits, key=lambda each: each.concurrent)
    limits = [tightest.concurrent, config.search.num_trials, config.search.max_concurrent or tightest.concurrent]
    return Fit(tightest.use_gpu, tightest.per_worker, tightest.num_workers, min(limits))


def _fit_one(scaling: Scaling, nodes: Sequence[Resources]) -> Fit:
    has_gpu = any(node.get("GPU", 0) > 0 for node in nodes)
    use_gpu = has_gpu if scaling.use_gpu == "auto" else scaling.use_gpu
    per_worker = worker_resources(scaling, use_gpu=use_gpu)
    if not any(per_worker.values()):
        raise DoesNotFit(
            "scaling.resources_per_worker: a worker that reserves nothing would fit any number of times; "
            "give it something, such as scaling.resources_per_worker.CPU=1"
        )
    nodes = _labelled(scaling, nodes)
    room = [_fits_on(per_worker, node) for node in nodes]
    placed = sum(room)
    if placed < scaling.num_workers:
        total: dict[str, float] = {}
        for node in nodes:
            for name, amount in node.items():
                if name in per_worker:
                    total[name] = total.get(name, 0) + amount
        has = ", ".join(f"{total.get(name, 0):g} {name}" for name in per_worker)
        needs = ", ".join(f"{amount:g} {name}" for name, amount in per_worker.items())
        fix = f"lower scaling.num_workers to {placed}" if placed else "lower scaling.resources_per_worker"
        raise DoesNotFit(
            f"scaling.num_workers={scaling.num_workers}: the cluster can place {placed} workers of {needs} "
            f"(it has {has}); {fix}, or raise cluster.num_cpus or join a larger cluster with cluster.address"
        )
    return Fit(use_gpu, per_worker, scaling.num_workers, _concurrent(scaling, room))


def _labelled(scaling: Scaling, nodes: Sequence[Resources]) -> Sequence[Resources]:
    wanted = [label(name, value) for name, value in scaling.labels.items()]
    suitable = [node for node in nodes if all(each in node for each in wanted)]
    if not suitable:
        known = sorted({each for node in nodes for each in node if each.startswith(LABEL)})
        has = ", ".join(each.removeprefix(LABEL) for each in known) or "none"
        raise DoesNotFit(
            f"scaling.labels={scaling.labels}: no node of the cluster has these labels (there are: {has}); give nodes "
            "labels with `ray start --labels`, or drop them"
        )
    return suitable


def _concurrent(scaling: Scaling, room: Sequence[int]) -> int:
    """Trials at once on nodes with room for so many workers each.

    Raises:
        DoesNotFit: Not one can be placed as it shall be.
    """
    number = scaling.num_workers
    if scaling.placement == "STRICT_PACK":
        at_once = sum(each // number for each in room)
        if not at_once:
            raise DoesNotFit(
                f"scaling.placement=STRICT_PACK: no node has room for {number} workers, and the largest for "
                f"{max(room)}; use PACK, or lower scaling.num_workers to {max(room)}"
            )
        return at_once
    if scaling.placement == "STRICT_SPREAD":
        at_once = max(
            (each for each in range(1, sum(room) + 1) if sum(min(one, each) for one in room) >= each * number),
            default=0,
        )
        if not at_once:
            nodes = sum(1 for each in room if each)
            raise DoesNotFit(
                f"scaling.placement=STRICT_SPREAD: {number} workers need as many nodes, and {nodes} have room for one; "
                f"use SPREAD, or lower scaling.num_workers to {nodes}"
            )
        return at_once
    return sum(room) // number


def worker_resources(scaling: Scaling, *, use_gpu: bool) -> dict[str, float]:
    """What Ray reserves for one worker."""
    kind = scaling.accelerator_type
    of_kind = {accelerator(kind): 0.001} if kind else {}  # as much as Ray Train asks for
    return {"CPU": 1.0, **({"GPU": 1.0} if use_gpu else {}), **of_kind, **scaling.resources_per_worker}


def trial_resources(scaling: Scaling, *, use_gpu: bool) -> dict[str, float]:
    """What Ray reserves for all workers of a trial."""
    return {name: amount * scaling.num_workers for name, amount in worker_resources(scaling, use_gpu=use_gpu).items()}


def _fits_on(worker: Resources, node: Resources) -> int:
    """How many workers a node holds."""
    return min(int(node.get(name, 0) / amount + 1e-9) for name, amount in worker.items() if amount > 0)


def worker_room(places: Fit, nodes: Sequence[Resources], address: str) -> dict[str, float]:
    """What the least of the workers has of each kind of memory when all of them run, in MiB, by the metric that
    reports its use; that of GPUs only where they are in this machine.

    Args:
        places: How many workers run at once.
        nodes: Resources of each node; Ray knows a node's ``memory``, in bytes.
        address: Of the cluster.
    """
    holding = [(node["memory"], _fits_on(places.per_worker, node)) for node in nodes if "memory" in node]
    at_once = places.concurrent * places.num_workers
    shares = [memory / min(workers, at_once) for memory, workers in holding if workers]
    room = {"system/memory_mib": min(shares) / MIB} if shares else {}
    if address == "local" and places.use_gpu:
        room |= {"system/gpu_memory_mib": smallest} if (smallest := _smallest_gpu_mib()) else {}
    return room


def _smallest_gpu_mib() -> float | None:
    """By NVIDIA's own command, since importing torch takes seconds; None where there is no such command."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return min(float(line) for line in done.stdout.split())
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


@dataclass(frozen=True)
class Connection:
    """A cluster that this process has joined, or started."""

    nodes: list[dict[str, float]]
    """Resources of each node."""
    dashboard: str | None
    """Address of its dashboard, if it has one."""


@contextlib.contextmanager
def connected(config: SweepConfig) -> Iterator[Connection]:
    """A connection to the cluster, which leaves it as it found it.

    Raises:
        UserError: ``cluster.address`` does not answer.
    """
    import ray

    _quieten()
    cluster = config.cluster
    local = cluster.address == "local"
    environment = _worker_environment()
    arguments: dict[str, Any] = {"runtime_env": {"env_vars": environment}}
    if local:
        arguments = {"num_cpus": cluster.num_cpus, "num_gpus": cluster.num_gpus, "include_dashboard": False}
        # Nobody announces that this machine will be taken away: one process less for each worker group.
        environment = {**environment, **_on_loopback(), "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0"}
    try:
        # What Ray starts here inherits our environment. A runtime environment would do the same, but the processes
        # that Ray has ready for the first actors could not be used then.
        with _environment(environment if local else {}), _ray_on_loopback(local=local):
            context = ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR, **arguments)
    except (ConnectionError, ValueError, RuntimeError) as error:  # nobody answers; an address of no known form
        raise UserError(
            f"cluster.address={cluster.address}: no Ray cluster answers there ({str(error).splitlines()[0]}); "
            "start one with `ray start --head`, or use cluster.address=local"
        ) from None
    try:
        yield Connection(alive_nodes(), answering_dashboard(getattr(context, "dashboard_url", None)))
    finally:
        ray.shutdown()


def answering_dashboard(address: str | None) -> str | None:
    """The dashboard's URL, if one is there: a cluster may name an address and, of a Ray without ``ray[default]``, or
    when the dashboard has died, have nothing behind it.

    Args:
        address: ``host:port``, as Ray names it; a client's connection names none.
    """
    if not address:
        return None
    host, _, port = address.rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=DASHBOARD_WITHIN_S)
    try:
        connection.request("GET", "/")
        connection.getresponse()  # also one that asks for a token is there
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
    return f"http://{address}"


def alive_nodes() -> list[dict[str, float]]:
    """Resources and labels of each node of the cluster that is connected."""
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [
        {name: float(amount) for name, amount in node["Resources"].items()}
        | {label(name, value): math.inf for name, value in node.get("Labels", {}).items()}
        for node in nodes
        if node["Alive"]
    ]


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Environment variables, for a while; those that are set already are left alone."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


RAY_LISTENS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's switch for macOS and Windows, where its local clusters listen on loopback alone; it does the same on Linux."""


def _on_loopback() -> dict[str, str]:
    """Environment of a cluster on this machine alone: its processes, and workers among themselves, use loopback."""
    return {RAY_LISTENS: "0", "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo"}


@contextlib.contextmanager
def _ray_on_loopback(*, local: bool) -> Iterator[None]:
    """Ray reads its switch when it is imported, which a notebook may have done long before."""
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    if local and os.environ.get(RAY_LISTENS) == "0":
        ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _worker_environment() -> dict[str, str]:
    """Environment of every process that Ray starts for us."""
    return {
        # Train's controller looks after its workers at this interval; its default of 2 s delays every end of a trial.
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
        "RAY_TRAIN_METRICS_ENABLED": "0",
        # The output of workers goes to the log files of their trial, and not into Ray's session as well.
        "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
        "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING": "0",
        "RAY_CHDIR_TO_TRIAL_DIR": "0",  # workers stay in the working folder, where data.path=texts.jsonl is
        "TOKENIZERS_PARALLELISM": "false",  # its warning about forks, once for every worker
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        # A cluster that was started without them knows nothing of where this person keeps tokenized data.
        **{name: os.environ[name] for name in ("SWEEPS_CACHE", "SWEEPS_CACHE_GIB") if name in os.environ},
    }


def _to_log(data: Any, ignore_prefix: bool) -> None:  # noqa: ARG001 - the signature of what it replaces
    for line in data["lines"]:
        logging.getLogger("ray").debug(line)


def _quieten() -> None:
    """Ray's, Tune's and Optuna's own tables, hints and warnings: the sweep has its own progress."""
    quiet = {
        "RAY_AIR_NEW_OUTPUT": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # no CSV, JSON and TensorBoard copies of what MLflow has
        "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # the trial itself checks, and says what was reported
        "TUNE_DISABLE_SIGINT_HANDLER": "1",  # ours stops the trials first
        "TUNE_WARN_THRESHOLD_S": "60",
        "TUNE_RESULT_BUFFER_LENGTH": "1",
    }
    for name, value in quiet.items():  # some are read when ray is imported
        os.environ.setdefault(name, value)
    from ray._private import worker as ray_worker

    # Ray prints a paragraph about every dead worker into our stdout. The trial that lost it says so in one line.
    ray_worker.print_to_stdstream = _to_log
    for name in ("ray", "ray.tune", "ray.train", "optuna"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # tracebacks of failed trials, too
