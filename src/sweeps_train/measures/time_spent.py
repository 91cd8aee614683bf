"""Time that a training has spent on each activity since it began."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from sweeps_train.steps.step_clock import StepClock

Activity = Literal["evaluation", "checkpoint"]


class TimeSpent:
    """Counts the seconds of one attempt at a training by activity.

    Setup, evaluations and checkpoints are timed on this worker, since all workers take part in them together; the parts
    of the steps are means over the workers.
    """

    def __init__(self, setup_s: float, clock: StepClock):
        self._clock = clock
        self._seconds = dict.fromkeys(("steps", "data_wait", "communication", "evaluation", "checkpoint"), 0.0)
        self._seconds["setup"] = setup_s
        self._communication_share = 0.0

    @contextmanager
    def on(self, activity: Activity) -> Iterator[None]:
        """Context manager whose duration is counted for an activity."""
        began = time.perf_counter()
        try:
            with self._clock.stopped():
                yield
        finally:
            self._seconds[activity] += time.perf_counter() - began

    def add_steps(self, seconds: float, data_wait_share: float, communication_share: float | None) -> None:
        """Add optimizer steps.

        Args:
            seconds: Duration of these steps.
            data_wait_share: Part of it in which workers waited for data, from 0 to 1.
            communication_share: Part of it in which they communicated; None if that was not measured in these steps, in
                which case the last measured part is used, or 0 before the first measurement.
        """
        if communication_share is not None:
            self._communication_share = communication_share
        self._seconds["steps"] += seconds
        self._seconds["data_wait"] += seconds * data_wait_share
        # Communication is measured after the data has arrived: its share refers to the rest of the time.
        self._seconds["communication"] += seconds * (1 - data_wait_share) * self._communication_share

    def metrics(self) -> dict[str, float]:
        """Return the seconds by activity: ``time/setup_s``, ``time/steps_s`` and their parts ``time/data_wait_s`` and
        ``time/communication_s``, ``time/evaluation_s``, ``time/checkpoint_s``."""
        return {f"time/{activity}_s": seconds for activity, seconds in self._seconds.items()}
