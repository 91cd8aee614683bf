"""Cost of pausing trials, measured in the first ones."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from sweeps.constants import CHECKPOINT_TIME, EVALUATIONS, RESTARTED, SAVED, TIME_OF_REPORT

MOST = 0.05
"""Maximum part of a training that saving at each evaluation and one restart may take."""
BEGINNINGS, INTERVALS = 3, 4
"""Numbers of measurements after which the cost is known."""


class PauseCost:
    """Measures the time to save and to restart, in addition to the training between two evaluations."""

    def __init__(self, evaluations: float | None):
        """
        Args:
            evaluations: Number of evaluations of a whole training; None to learn it from the first trial that ends.
        """
        self._evaluations = evaluations
        self._begins: set[str] = set()
        """Trials that have not reported since they began or continued."""
        self._saved_s: dict[str, float] = {}
        self._beginnings: list[float] = []
        """Seconds from the start of a trial, or of its continuation, to its next report."""
        self._intervals: list[float] = []
        self._savings: list[float] = []

    def begin(self, trial: str, *, counts: bool) -> None:
        """Record that a trial begins or continues.

        Args:
            trial: Id of the trial.
            counts: Whether to measure the start; false while the first workers are started.
        """
        self._saved_s.pop(trial, None)
        if counts:
            self._begins.add(trial)

    def report(self, trial: str, result: Mapping[str, Any]) -> str | None:
        """Add a report.

        Returns:
            Reason why trials should not be paused, if known now.
        """
        if result.get(SAVED) is False:
            return "the trials report without checkpoints"
        seconds = result.get(TIME_OF_REPORT)
        if seconds is None:  # in a simulation
            return None
        before, now = self._saved_s.get(trial), float(result.get(CHECKPOINT_TIME, 0.0))
        self._saved_s[trial] = now
        if trial in self._begins:
            self._begins.remove(trial)
            self._beginnings.append(seconds)
        elif before is not None and not result.get(RESTARTED):  # else its attempt before has failed or moved
            saving = max(now - before, 0.0)
            self._savings.append(saving)
            self._intervals.append(max(seconds - saving, 1e-6))
        share = self.share
        if share is None or share <= MOST:
            return None
        return f"saving and restarting would take {share:.0%} of a training, more than {MOST:.0%}"

    def complete(self, result: Mapping[str, Any]) -> None:
        """Record that a training has reached its end with this report."""
        self._evaluations = self._evaluations or result.get(EVALUATIONS)

    @property
    def share(self) -> float | None:
        """Share of a whole training that saving at each evaluation and one restart take; None while there are too few
        measurements, or the length of a training is unknown."""
        evaluations = self._evaluations
        if evaluations is None or len(self._beginnings) < BEGINNINGS or len(self._intervals) < INTERVALS:
            return None
        interval, saving = statistics.median(self._intervals), statistics.median(self._savings)
        beginning = max(statistics.median(self._beginnings) - interval - saving, 0.0)
        return (saving * evaluations + beginning) / (interval * evaluations)
