"""Private names of the actors of Ray Train (2.60): its worker groups and workers.

Apart from ``ray_train``, since the broker's process needs no trainer, whose import loads torch for seconds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import ray


@dataclass(frozen=True)
class WorkerProcess:
    """A worker of a group that has started."""

    actor: Any
    node_id: str
    process_id: int
    location: str
    """``host``, or ``host/0`` on its GPU 0."""


def worker_processes(worker_group: Any) -> list[WorkerProcess]:
    """The workers of Ray Train's worker group, by rank."""
    return [_worker_process(worker.actor, worker.metadata) for worker in worker_group.get_workers()]


def _worker_process(actor: Any, metadata: Any) -> WorkerProcess:
    gpus = ",".join(map(str, metadata.gpu_ids))
    location = f"{metadata.hostname}/{gpus}" if gpus else str(metadata.hostname)
    return WorkerProcess(actor, metadata.node_id, metadata.pid, location)


def placement_group(worker_group: Any) -> Any:
    """The placement group of Ray Train's worker group."""
    return worker_group.get_worker_group_state().placement_group_handle.placement_group


def ping(actor: Any) -> Any:
    """Call a worker's actor; returns Ray's reference, which fails if the worker is dead."""
    return actor.get_metadata.remote()


def execute(actor: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a worker's process, beside its training; returns Ray's reference to the result."""
    return actor.execute.remote(function, *arguments)


def end_processes(workers: Sequence[WorkerProcess], within_s: float) -> None:
    """Let workers end as Python programs do, with their exit handlers and their files written, before Ray Train kills
    them.

    Args:
        workers: Those of a group, whose training may still run.
        within_s: Maximum seconds to wait for their end.
    """
    here = ray.get_runtime_context().get_node_id()
    for each in workers:
        execute(each.actor, ray.actor.exit_actor)
    elsewhere = [ping(each.actor) for each in workers if each.node_id != here]  # fails when Ray has let go of them
    own = []
    for each in workers:
        with contextlib.suppress(psutil.NoSuchProcess):
            own += [psutil.Process(each.process_id)] if each.node_id == here else []
    psutil.wait_procs(own, within_s)
    if elsewhere:
        ray.wait(elsewhere, num_returns=len(elsewhere), timeout=within_s)


def health_check_error(failure: BaseException) -> BaseException | None:
    """The error of the actor of a worker whose health check failed; None for other failures."""
    error: BaseException | None = getattr(failure, "health_check_failure", None)
    return error
