"""Median stopping, by Tune."""

from __future__ import annotations

import math
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import MedianStoppingRule, TrialScheduler


class MedianStopping(MedianStoppingRule):
    """Stops a trial whose best value so far is worse than the median of what the others averaged up to the same point
    (Golovin et al., 2017, Google Vizier). Every report counts once, however often it comes. A trial that reports NaN
    ends there, once it has had its grace."""

    def __init__(self, resource: str, grace: float, min_trials: int):
        super().__init__(
            time_attr=resource,
            grace_period=grace,
            min_samples_required=min_trials,
            min_time_slice=math.inf,  # type: ignore[arg-type]  # with too few to compare with, Tune would pause trials
        )

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        assert self._metric is not None
        if math.isnan(result.get(self._metric, 0.0)):
            late = result.get(self._time_attr, 0.0) >= self._grace_period
            return TrialScheduler.STOP if late else TrialScheduler.CONTINUE
        if self._heard(trial, result):
            return TrialScheduler.CONTINUE
        return super().on_trial_result(tune_controller, trial, result)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """The last report of a trial that came to its end; that of one that was stopped was heard before."""
        assert self._metric is not None
        known = self._time_attr in result and not math.isnan(result.get(self._metric, math.nan))
        if known and not self._heard(trial, result):
            super().on_trial_complete(tune_controller, trial, result)

    def _heard(self, trial: Trial, result: dict[str, Any]) -> bool:
        """A trial that is started again repeats reports."""
        reports: list[dict[str, Any]] = self._results.get(trial, [])
        return bool(reports) and result.get(self._time_attr, math.inf) <= reports[-1][self._time_attr]
