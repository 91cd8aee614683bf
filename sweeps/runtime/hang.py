"""Detection of hanging workers by their silence, and diagnosis by the stacks of their threads."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any

import ray

from sweeps.compat.ray_train_workers import execute
from sweeps.runtime.native_stacks import ask_for_stacks, hang_error
from sweeps.worker_error import WorkerError

START_WITHIN_S = 600.0
"""Maximum seconds for workers to begin a trial."""
STACKS_WITHIN_S = 15.0
"""Maximum seconds to wait for the signals that ask hanging workers for their stacks."""
STACKS_WRITTEN_S = 0.5
"""Seconds to wait until the stacks are in the workers' logs."""
RECORDS_WITHIN_S = 10.0
"""Maximum seconds to wait for the flight records of hanging workers."""


class Silence:
    """Time since a trial's workers last posted something or last received a decision for which they waited."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def end(self, *, counts: bool) -> None:
        """End this silence and begin to time the next one. Unless it ``counts``, it cannot become the longest."""
        if counts:
            self.longest_s = max(self.longest_s, self.seconds)
        self._began = time.monotonic()


def allowed_silence_s(hang_timeout_s: float, start_timeout_s: float, *, is_starting: bool) -> float:
    """Return the seconds of silence after which workers count as hanging. Workers that have not begun the trial get
    longer, because a machine may be busy."""
    return max(hang_timeout_s, START_WITHIN_S, start_timeout_s) if is_starting else hang_timeout_s


async def diagnose_hang(
    message: str, processes: Sequence[tuple[str, int]], locations: Sequence[str], log_folder: str
) -> WorkerError:
    """Build the error for hanging workers, with the line of code at which each one is, if known.

    Args:
        message: Description of the hang.
        processes: Node and process id of each worker, by rank.
        locations: ``host`` or ``host/gpu`` of each worker, by rank.
        log_folder: Folder of the trial's logs.
    """
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
