"""Median stopping."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sweeps.search.curve_model.observations import Array
from sweeps.search.schedulers.decisions import DecisionLog, encoded
from sweeps.search.schedulers.early_stopping import EarlyStoppingScheduler


@dataclass
class Reports:
    """A trial's reports, in ascending order of the resource."""

    last: float = -math.inf
    """Resource of the last one."""
    best: float = -math.inf
    """Best value; larger is better."""
    reached: list[float] = field(default_factory=list)
    """Resource of those from the grace on."""
    values: list[float] = field(default_factory=list)
    """Their values."""
    averages: dict[int, float] = field(default_factory=dict)
    """Averages of the first so many of these values, as far as they were asked for."""

    def average(self, reached: float) -> float:
        """Average of the values from the grace up to a resource; NaN if there are none."""
        count = bisect_right(self.reached, reached)
        average = self.averages.get(count)
        if average is None:
            # Not from a running sum, which differs in the last digits: equal averages would become unequal.
            average = self.averages[count] = float(np.mean(self.values[:count])) if count else math.nan
        return average


class MedianStopping(EarlyStoppingScheduler):
    """The median stopping rule (Golovin et al., 2017, Google Vizier).

    Stops a trial whose best value so far is worse than the median of the other trials' averages up to the same point.
    A report that a restarted trial repeats counts once. A trial that reports NaN or an infinitely bad value is stopped
    after its grace.
    """

    def __init__(self, resource: str, grace: float, min_trials: int, decisions: DecisionLog | None = None):
        """
        Args:
            resource: Key of the result that progress is counted in.
            grace: Progress from which on reports are averaged and trials are stopped.
            min_trials: Number of other trials to compare with, at least.
            decisions: As in ``RecordedScheduler``.
        """
        super().__init__(resource, grace, decisions)
        self._min_trials = min_trials
        self._reports: dict[str, Reports] = defaultdict(Reports)
        """Reports by trial."""

    def event(self, reached: float, value: float) -> dict[str, Any]:
        return {"reached": encoded(reached), "value": encoded(value)}

    def replay(self, number: str, event: Mapping[str, Any]) -> None:
        own, reached, value = self._reports[number], float(event["reached"]), float(event["value"])
        own.last, own.best = reached, max(own.best, self._sign * value)
        if reached >= self._grace:
            own.reached.append(reached)
            own.values.append(value)

    def compare(self, number: str, event: Mapping[str, Any]) -> bool | None:
        own, reached = self._reports[number], float(event["reached"])
        if reached <= own.last:
            return None
        self.replay(number, event)
        averages = self._averages(number, reached)
        if len(averages) < self._min_trials:
            return False
        return bool(self._sign * np.median(averages) > own.best)

    def forget(self, number: str) -> None:
        self._reports.pop(number, None)

    def reason(self, number: str, event: Mapping[str, Any]) -> str | None:
        own, reached = self._reports[number], float(event["reached"])
        if reached <= own.last:
            return None
        best = max(own.best, self._sign * float(event["value"]))
        value = f"at {reached:g} {self._resource} its best {self._objective} so far was {self._sign * best:.6g}"
        averages = self._averages(number, reached)
        if len(averages) < self._min_trials:
            return f"{value}; not compared: {len(averages)} others had come as far, {self._min_trials} are needed"
        median = float(np.median(averages))
        verdict = "worse than" if self._sign * median > best else "at least as good as"
        return f"{value}, {verdict} {median:.6g}, the median of the averages of {len(averages)} others"

    def _averages(self, number: str, reached: float) -> Array:
        """Averages of the other trials that came as far, over their reports from the grace up to there."""
        others = (each for other, each in self._reports.items() if other != number and each.last >= reached)
        averages = np.array([each.average(reached) for each in others] if reached >= self._grace else [])
        return np.asarray(averages[np.isfinite(averages)])
