"""Private names of the actors of Ray Train (2.60): its worker groups and workers.

Separate from ``ray_train``, since the broker's process needs no trainer, and importing that loads torch for seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from sweeps.compat.python_exit import run_exit_handlers


@dataclass(frozen=True)
class WorkerProcess:
    """A worker of a group that has started."""

    actor: Any
    node_id: str
    process_id: int
    location: str
    """``host``, or ``host/0`` on its GPU 0."""


def worker_processes(worker_group: Any) -> list[WorkerProcess]:
    """Return the workers of Ray Train's worker group, by rank."""
    return [_worker_process(worker.actor, worker.metadata) for worker in worker_group.get_workers()]


def _worker_process(actor: Any, metadata: Any) -> WorkerProcess:
    gpus = ",".join(map(str, metadata.gpu_ids))
    location = f"{metadata.hostname}/{gpus}" if gpus else str(metadata.hostname)
    return WorkerProcess(actor, metadata.node_id, metadata.pid, location)


def placement_group(worker_group: Any) -> Any:
    """Return the placement group of Ray Train's worker group."""
    return worker_group.get_worker_group_state().placement_group_handle.placement_group


def ping(actor: Any) -> Any:
    """Call a worker's actor; return Ray's reference, which fails if the worker is dead."""
    return actor.get_metadata.remote()


def execute(actor: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a worker's process while its training runs; return Ray's reference to the result."""
    return actor.execute.remote(function, *arguments)


def let_exit(workers: Sequence[WorkerProcess], within_s: float) -> None:
    """Let workers of one group, whose training may still run, run Python's exit handlers before Ray Train kills
    them."""
    exits = [execute(each.actor, run_exit_handlers) for each in workers]
    ray.wait(exits, num_returns=len(exits), timeout=within_s)


def health_check_error(failure: BaseException) -> BaseException | None:
    """Return the actor's error behind a worker's failed health check; None for other failures."""
    error: BaseException | None = getattr(failure, "health_check_failure", None)
    return error
