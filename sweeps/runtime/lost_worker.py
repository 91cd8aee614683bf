"""Detection of workers whose process died without reporting an error; Ray knows which workers, and part of the
reason."""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence

import ray

from sweeps.compat.ray_train_workers import WorkerProcess, health_check_error, ping
from sweeps.runtime.cluster import nodes_of_ray
from sweeps.worker_error import WorkerError

TRACEBACK = "Traceback (most recent call last):"
NODE_DIED = "its node died, or cannot be reached"
PROCESS_DIED = "its process was killed or crashed"
ANSWER_WITHIN_S = 3.0
"""Maximum seconds for a worker, or for a node's Ray process, to answer that it is alive."""


def lost_workers(exception: BaseException, locations: Sequence[str], nodes: Sequence[str]) -> tuple[WorkerError, ...]:
    """Return the lost workers that an error of Ray Train names.

    Args:
        locations: ``host`` or ``host/gpu`` of each worker, by rank.
        nodes: Ray's id of each worker's node, by rank.
    """
    failures: Mapping[int, BaseException] = getattr(exception, "worker_failures", None) or {}
    deaths = ((rank, health_check_error(failure)) for rank, failure in failures.items())
    reachable = functools.cache(is_reachable)  # a node is asked once, however many of its workers were lost
    return tuple(
        _lost_worker(rank, locations, nodes, death, reachable)
        for rank, death in deaths
        if isinstance(death, ray.exceptions.RayActorError | ray.exceptions.OutOfMemoryError)
    )


def dead_workers(workers: Sequence[WorkerProcess]) -> Iterator[WorkerError]:
    """Yield the dead workers of a group, given by rank; a worker that does not answer in time counts as alive."""
    answers = [ping(worker.actor) for worker in workers]
    ready, _ = ray.wait(answers, num_returns=len(answers), timeout=ANSWER_WITHIN_S)
    locations, nodes = [worker.location for worker in workers], [worker.node_id for worker in workers]
    reachable = functools.cache(is_reachable)
    for rank, answer in enumerate(answers):
        if answer in ready:
            try:
                ray.get(answer)
            except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError) as death:
                yield _lost_worker(rank, locations, nodes, death, reachable)


def _lost_worker(
    rank: int,
    locations: Sequence[str],
    nodes: Sequence[str],
    death: BaseException,
    reachable: Callable[[str], bool],
) -> WorkerError:
    host = locations[rank].partition("/")[0] if rank < len(locations) else "an unknown node"
    preempted = isinstance(death, ray.exceptions.RayActorError) and death.preempted
    reason = _reason(str(death))
    if reason == PROCESS_DIED and rank < len(nodes) and not reachable(nodes[rank]):
        reason = NODE_DIED  # Ray notices a dead node seconds after the processes on it
    return WorkerError(
        kind="lost",
        type=type(death).__name__,
        message=f"worker {rank} on {host} was lost: {reason}",
        rank=rank,
        num_workers=len(locations),
        node=host,
        traceback=str(death),
        node_was_taken=preempted or "node was terminated expectedly" in str(death),
    )


def is_reachable(node: str) -> bool:
    """Whether Ray on the node with this id accepts connections."""
    found = next((each for each in nodes_of_ray() if each["NodeID"] == node), None)
    if found is None:
        return False
    try:
        address = (found["NodeManagerAddress"], found["NodeManagerPort"])
        socket.create_connection(address, ANSWER_WITHIN_S).close()
    except OSError:
        return False
    return True


def _reason(text: str) -> str:
    lower = text.lower()
    if "node has died" in lower or "node died" in lower or "node was terminated" in lower:
        return NODE_DIED
    if "low on memory" in lower or "out_of_memory" in lower:
        return "it was killed because its node was running low on memory"
    return PROCESS_DIED


def summarize_error(exception: BaseException) -> str:
    """Summarize an error in one line, without Ray's wrapping, advice and links: the first line of the first worker's
    error, or the last line of a traceback that the error quotes."""
    failures = getattr(exception, "worker_failures", None)
    exception = next(iter(failures.values())) if failures else exception
    cause = getattr(exception, "cause", None)
    exception = cause if isinstance(cause, BaseException) else exception
    text, name = str(exception).strip(), type(exception).__name__
    if not text:
        return name
    lines = text.splitlines()
    line = lines[-1 if TRACEBACK in text else 0].strip()
    return line if line.startswith(name) or ": " in line else f"{name}: {line}"
