"""Cost of a trial so far, reported as metrics with each of its evaluations."""

from __future__ import annotations

import time
from collections.abc import Mapping

from sweeps.runtime.events import Report
from sweeps.runtime.report_log import read_report_log
from sweeps.runtime.trial_assignment import Assignment


class CostMeter:
    """Counts the cost of a trial's workers while they train it, over all its attempts."""

    def __init__(self, assignment: Assignment):
        self._rates = assignment.hourly
        self._before = dict.fromkeys(self._rates, 0.0)
        self._evaluations = dict.fromkeys(self._rates, 0.0)
        self._began = time.monotonic()
        if self._rates:
            for event in read_report_log(assignment.checkpoint_folder):
                if isinstance(event, Report):
                    self._before = {name: event.metrics.get(name, 0.0) for name in self._rates}

    def charge(self, hourly: Mapping[str, float], seconds: float) -> None:
        """Add the cost of an evaluation in another pool, given its cost per hour by metric."""
        for name in self._evaluations:
            self._evaluations[name] += hourly.get(name, 0.0) * seconds / 3600

    def metrics(self) -> dict[str, float]:
        """Return the cost so far, by metric; empty without prices and pools."""
        hours = (time.monotonic() - self._began) / 3600
        return {name: self._before[name] + rate * hours + self._evaluations[name] for name, rate in self._rates.items()}
