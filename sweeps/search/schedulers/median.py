"""Median stopping."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from sweeps.search.schedulers.decisions import DecisionLog, encoded
from sweeps.search.schedulers.early_stopping import EarlyStoppingScheduler


class MedianStopping(EarlyStoppingScheduler):
    """The median stopping rule (Golovin et al., 2017, Google Vizier).

    Stops a trial whose best value so far is worse than the median of the other trials' averages up to the same point.
    A report that a restarted trial repeats counts once. A trial that reports NaN is stopped after its grace.
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
        self._reports: dict[str, list[tuple[float, float]]] = defaultdict(list)
        """Resource and value of each report, by trial."""

    def event(self, reached: float, value: float) -> dict[str, Any]:
        return {"reached": encoded(reached), "value": encoded(value)}

    def replay(self, number: str, event: Mapping[str, Any]) -> None:
        self._reports[number].append((float(event["reached"]), float(event["value"])))

    def compare(self, number: str, event: Mapping[str, Any]) -> bool | None:
        own, reached = self._reports[number], float(event["reached"])
        if own and reached <= own[-1][0]:
            return None
        self.replay(number, event)
        averages = self._averages(number, reached) if reached >= self._grace else []
        if len(averages) < self._min_trials:
            return False
        best = max(self._sign * value for _, value in own)
        return bool(self._sign * np.median(averages) > best)

    def explain(self, number: str, event: Mapping[str, Any]) -> str | None:
        own, reached = self._reports[number], float(event["reached"])
        if own and reached <= own[-1][0]:
            return None
        best = max(self._sign * value for _, value in (*own, (reached, float(event["value"]))))
        value = f"at {reached:g} {self._resource} its best {self._objective} so far was {self._sign * best:.6g}"
        averages = self._averages(number, reached) if reached >= self._grace else []
        if len(averages) < self._min_trials:
            return f"{value}; not compared: {len(averages)} others had come as far, {self._min_trials} are needed"
        median = float(np.median(averages))
        verdict = "worse than" if self._sign * median > best else "at least as good as"
        return f"{value}, {verdict} {median:.6g}, the median of the averages of {len(averages)} others"

    def _averages(self, number: str, reached: float) -> list[float]:
        """Averages of the other trials that came as far, over their reports from the grace up to there."""
        averages = []
        for other, reports in self._reports.items():
            if other != number and reports[-1][0] >= reached:
                values = [value for at, value in reports if self._grace <= at <= reached]
                if values and np.isfinite(average := float(np.mean(values))):
                    averages.append(average)
        return averages
