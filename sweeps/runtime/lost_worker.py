"""Workers that died without a word: Ray knows which, and something of why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ray

from sweeps.worker_error import WorkerError

ANSWER_WITHIN_S = 3.0
"""Seconds that a worker has to show that it lives."""


def lost_worker(rank: int, places: Sequence[str], death: BaseException) -> WorkerError:
    """
    Args:
        rank: Of the worker.
        places: ``host`` or ``host/0`` of each worker, by rank.
        death: Ray's error of its actor.
    """
    node = places[rank].partition("/")[0] if rank < len(places) else "an unknown node"
    return WorkerError(
        kind="lost",
        type=type(death).__name__,
        message=f"worker {rank} on {node} was lost: {_why(str(death))}",
        rank=rank,
        num_workers=len(places),
        node=node,
        traceback=str(death),
    )


def lost_workers(exception: BaseException, places: Sequence[str]) -> tuple[WorkerError, ...]:
    """Those that an error of Ray Train names."""
    failures: Mapping[int, BaseException] = getattr(exception, "worker_failures", None) or {}
    deaths = ((rank, getattr(failure, "health_check_failure", None)) for rank, failure in failures.items())
    return tuple(
        lost_worker(rank, places, death) for rank, death in deaths if isinstance(death, ray.exceptions.RayActorError)
    )


def dead_workers(actors: Sequence[Any], places: Sequence[str]) -> Iterator[WorkerError]:
    """Those of a worker group that do not live any more; one that does not answer in time counts as alive."""
    answers = [actor.get_metadata.remote() for actor in actors]
    ready, _ = ray.wait(answers, num_returns=len(answers), timeout=ANSWER_WITHIN_S)
    for rank, answer in enumerate(answers):
        if answer in ready:
            try:
                ray.get(answer)
            except ray.exceptions.RayActorError as death:
                yield lost_worker(rank, places, death)


def _why(text: str) -> str:
    lower = text.lower()
    if "node has died" in lower or "node died" in lower or "node was terminated" in lower:
        return "its node died, or cannot be reached"
    if "low on memory" in lower or "out_of_memory" in lower:
        return "it was killed because its node was running low on memory"
    return "its process was killed or crashed"
