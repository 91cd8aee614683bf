"""Time account of a running sweep: that of its trials, and of the places that have no trial."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sweeps.driver.trial_time import TrialTime
from sweeps.tracking.time_account import TimeAccount

if TYPE_CHECKING:
    from sweeps.tracking.record import SweepRecord


class TimeLedger:
    """Counts all worker-seconds of a sweep, in all its sessions, by what they were spent on."""

    def __init__(self, earlier: SweepRecord | None):
        """
        Args:
            earlier: Record of the sessions before this one.
        """
        self._of_places = TimeAccount()
        self._trials: dict[str, TrialTime] = {}
        if earlier is None:
            return
        ended = earlier.time.sessions[-1][1] if earlier.time.sessions else earlier.started
        for trial in earlier.trials:
            self._trials[trial.trial] = TrialTime.restored(trial.account or TimeAccount(), trial.spans, ended)
        if (account := earlier.time.account) is not None:
            waited = sum(trial.account.waiting for trial in earlier.trials if trial.account is not None)
            self._of_places = TimeAccount(waiting=max(0.0, account.waiting - waited), idle_tail=account.idle_tail)

    def of(self, trial: str) -> TrialTime:
        """The account of a trial."""
        return self._trials.setdefault(trial, TrialTime())

    def count_empty_places(self, worker_seconds: float, *, more_to_come: bool) -> None:
        """Add time of places without a trial.

        Args:
            worker_seconds: Time of their workers.
            more_to_come: Whether more trials are to start.
        """
        if more_to_come:
            self._of_places.waiting += worker_seconds
        else:
            self._of_places.idle_tail += worker_seconds

    def account(self) -> TimeAccount:
        """All worker-seconds until now."""
        total, now = TimeAccount(), time.time()
        total.add(self._of_places)
        for trial in self._trials.values():
            total.add(trial.account(now))
        return total
