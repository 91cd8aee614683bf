"""Diagnosis of hanging workers by the stacks of their threads and by their last collective operations.
``Attempt.silence`` measures for how long workers have posted nothing, and ``Broker.next_outcome`` compares."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ray

from sweeps.compat.ray_train_workers import execute
from sweeps.runtime.attempt import Attempt, Phase, with_errors
from sweeps.runtime.events import Ended
from sweeps.runtime.native_stacks import ask_for_stacks, hang_error, named
from sweeps.runtime.slot_queue import SlotQueue
from sweeps.worker_error import WorkerError

STACKS_WITHIN_S = 15.0
"""Maximum seconds to wait for the signals that ask hanging workers for their stacks."""
STACKS_WRITTEN_S = 0.5
"""Seconds to wait until the stacks are in the workers' logs."""
RECORDS_WITHIN_S = 10.0
"""Maximum seconds to wait for the flight records of hanging workers."""


async def hang_end(attempt: Attempt, slot: SlotQueue, silent_s: float) -> Ended:
    """Return the end of an attempt whose workers hang, with a diagnosis of each worker; an error of one of them, whose
    end the others have not noticed, is the cause."""
    starting = attempt.phase is Phase.STARTING
    reason = "its workers do not start; other programs may use their resources" if starting else "its workers hang"
    if attempt.finished:
        reason += f"; {named(attempt.finished)} returned before, and what they wait for may need all workers"
    message = f"no report for {silent_s:.0f} s: {reason}"
    end, found = Ended(attempt.trial, attempt.number, message), list[WorkerError]()
    if (group := slot.group).processes:
        error = await diagnose_hang(message, group.processes, group.locations, attempt.log_folder)
        records = await flight_records(group.workers)
        end = replace(end, error=error.described, flight_records=records)
        found.append(error)
    errors = [*attempt.errors.values(), *found]  # a worker may have reported one during the diagnosis
    return with_errors(end, errors, attempt.log_folder)


async def diagnose_hang(
    message: str, processes: Sequence[tuple[str, int]], locations: Sequence[str], log_folder: str
) -> WorkerError:
    """Build the error for hanging workers, with the line of code at which each one is, if known."""
    with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
        await asyncio.wait_for(asyncio.gather(*ask_for_stacks(processes)), STACKS_WITHIN_S)
        await asyncio.sleep(STACKS_WRITTEN_S)
    return hang_error(message, processes, locations, log_folder)


async def flight_records(workers: Sequence[Any]) -> tuple[str | None, ...]:
    """Return the last collective operations of hanging workers, by rank; they show what each worker waits for.

    Args:
        workers: Actors of the workers. They answer during the training, unless its native code holds the GIL.

    Returns:
        JSON of torch's flight recorder; None for a worker that has no record, or does not answer.
    """
    answers = [asyncio.ensure_future(execute(each, _flight_record)) for each in workers]
    done, late = await asyncio.wait(answers, timeout=RECORDS_WITHIN_S)
    for answer in late:
        answer.cancel()
    return tuple(each.result() if each in done and each.exception() is None else None for each in answers)


def _flight_record() -> str | None:
    """Read the flight record; runs in a worker, which has imported torch, unlike the broker."""
    from sweeps_train.compat.torch import flight_record

    return flight_record()
