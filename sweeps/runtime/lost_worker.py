"""Workers whose process died without reporting an error; Ray knows which ones, and something of the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ray

from sweeps.compat.ray_train_workers import health_check_error, ping
from sweeps.worker_error import WorkerError

NODE_DIED = "its node died, or cannot be reached"
ANSWER_WITHIN_S = 3.0
"""Maximum seconds for a worker to answer that it is alive."""


def lost_workers(exception: BaseException, locations: Sequence[str]) -> tuple[WorkerError, ...]:
    """The lost workers that an error of Ray Train names.

    Args:
        exception: Error of ``TorchTrainer.fit``.
        locations: ``host`` or ``host/gpu`` of each worker, by rank.
    """
    failures: Mapping[int, BaseException] = getattr(exception, "worker_failures", None) or {}
    deaths = ((rank, health_check_error(failure)) for rank, failure in failures.items())
    return tuple(
        _lost_worker(rank, locations, death)
        for rank, death in deaths
        if isinstance(death, ray.exceptions.RayActorError)
    )


def dead_workers(actors: Sequence[Any], locations: Sequence[str]) -> Iterator[WorkerError]:
    """The dead workers of a group; one that does not answer in time counts as alive."""
    answers = [ping(actor) for actor in actors]
    ready, _ = ray.wait(answers, num_returns=len(answers), timeout=ANSWER_WITHIN_S)
    for rank, answer in enumerate(answers):
        if answer in ready:
            try:
                ray.get(answer)
            except ray.exceptions.RayActorError as death:
                yield _lost_worker(rank, locations, death)


def _lost_worker(rank: int, locations: Sequence[str], death: BaseException) -> WorkerError:
    node = locations[rank].partition("/")[0] if rank < len(locations) else "an unknown node"
    preempted = isinstance(death, ray.exceptions.RayActorError) and death.preempted
    return WorkerError(
        kind="lost",
        type=type(death).__name__,
        message=f"worker {rank} on {node} was lost: {_reason(str(death))}",
        rank=rank,
        num_workers=len(locations),
        node=node,
        traceback=str(death),
        node_was_taken=preempted or "node was terminated expectedly" in str(death),
    )


def _reason(text: str) -> str:
    lower = text.lower()
    if "node has died" in lower or "node died" in lower or "node was terminated" in lower:
        return NODE_DIED
    if "low on memory" in lower or "out_of_memory" in lower:
        return "it was killed because its node was running low on memory"
    return "its process was killed or crashed"
