"""Time account of a running sweep, covering its trials and idle places."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sweeps.driver.trial_time import TrialTime
from sweeps.tracking.record import last_update
from sweeps.tracking.time_account import TimeAccount

if TYPE_CHECKING:
    from sweeps.tracking.record import SweepRecord


class TimeLedger:
    """Counts all worker-seconds of a sweep, in all its sessions, by activity."""

    def __init__(self, earlier: SweepRecord | None):
        self._paid = self._idle_tail = 0.0
        self._trials: dict[str, TrialTime] = {}
        if earlier is None:
            return
        ended = last_update(earlier)
        for trial in earlier.all_trials:
            self._trials[trial.trial] = TrialTime.restored(trial.account or TimeAccount(), trial.spans, ended)
        if (account := earlier.time.account) is not None:
            self._paid, self._idle_tail = account.total, account.idle_tail

    def of(self, trial: str) -> TrialTime:
        return self._trials.setdefault(trial, TrialTime())

    def pay(self, seconds: float, workers: int, idle_workers: int) -> None:
        """Add the worker-seconds of a period.

        Args:
            seconds: Length of the period.
            workers: Number of workers of all places, with and without a trial.
            idle_workers: Number of workers in places that will have no trial any more.
        """
        self._paid += seconds * workers
        self._idle_tail += seconds * idle_workers

    def account(self) -> TimeAccount:
        """Return all worker-seconds until now."""
        total, now = TimeAccount(), time.time()
        for trial in self._trials.values():
            total.add(trial.account(now))
        without_trial = max(0.0, self._paid - total.total)
        total.idle_tail = min(self._idle_tail, without_trial)
        total.waiting += without_trial - total.idle_tail
        return total
