"""Median stopping, by Tune."""

from __future__ import annotations

import math
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import MedianStoppingRule, TrialScheduler

from sweeps.search.schedulers.decisions import STOPS, STOPS_IF_LONGER, History, Named, encoded


class MedianStopping(MedianStoppingRule):
    """Stops a trial whose best value so far is worse than the median of what the others averaged up to the same point
    (Golovin et al., 2017, Google Vizier). Every report counts once, however often it comes. A trial that reports NaN
    ends there, once it has had its grace."""

    def __init__(self, resource: str, grace: float, min_trials: int, history: History | None = None):
        super().__init__(
            time_attr=resource,
            grace_period=grace,
            min_samples_required=min_trials,
            min_time_slice=math.inf,  # type: ignore[arg-type]  # with too few to compare with, Tune would pause trials
        )
        self._history = history or History()

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        taken = super().set_search_properties(metric, mode, **spec)
        for name, event in self._history.events:
            assert name is not None
            self._results[Named(name)].append(
                {self._time_attr: float(event["reached"]), self._metric: float(event["value"])}
            )
        return taken

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        assert self._metric is not None
        self._history.hear(trial, result)
        if math.isnan(result.get(self._metric, 0.0)):
            late = result.get(self._time_attr, 0.0) >= self._grace_period
            return TrialScheduler.STOP if late else TrialScheduler.CONTINUE
        return TrialScheduler.STOP if self._is_worse(trial, result) else TrialScheduler.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """The last report of a trial that came to its end; that of one that was stopped was heard before."""
        self._is_worse(trial, result, STOPS_IF_LONGER)

    def _is_worse(self, trial: Trial, result: dict[str, Any], consequence: str = STOPS) -> bool:
        """Whether a trial is worse than the median, after a report that is kept if it is a new one."""
        assert self._metric is not None
        named = Named.of(trial)
        if self._time_attr not in result or math.isnan(result.get(self._metric, math.nan)):
            return False
        reached, value = result[self._time_attr], result[self._metric]
        if self._heard(named, reached):
            return False
        report = {self._time_attr: reached, self._metric: value}
        decision = super().on_trial_result(None, named, report)  # type: ignore[arg-type]  # without a controller
        stops = decision == TrialScheduler.STOP
        self._history.add(named.trial_id, {"reached": encoded(reached), "value": encoded(value), consequence: stops})
        return stops

    def _heard(self, trial: Named, reached: float) -> bool:
        """A trial that is started again repeats reports."""
        reports: list[dict[str, Any]] = self._results.get(trial, [])
        return bool(reports) and reached <= reports[-1][self._time_attr]
