"""Asynchronous successive halving, by Tune."""

from __future__ import annotations

import math
import random
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler

NEVER = 1e15
"""Beyond every trial, in any unit: the last rung bounds nothing, since a trial ends by itself, and one that did must
not be told apart from one that reached the last rung."""


class Asha(AsyncHyperBandScheduler):
    """Stops a trial at a rung if it is worse than the best 1/eta of those that reached that rung before it
    (Li et al., 2018, https://arxiv.org/abs/1810.05934). A report beyond several rungs counts at the highest of them.
    A trial that reports NaN ends there, once it has had its grace."""

    def __init__(self, resource: str, grace: float, eta: float, brackets: int, seed: int):
        super().__init__(
            time_attr=resource,
            max_t=NEVER,  # type: ignore[arg-type]  # any number does
            grace_period=grace,  # type: ignore[arg-type]
            reduction_factor=eta,
            brackets=brackets,
            stop_last_trials=False,  # else a report beyond a rung that was missed counts at that one later
        )
        self._grace = grace
        self._random = random.Random(seed)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Chooses its bracket; a trial that is started again keeps it."""
        if trial.trial_id in self._trial_info:
            return
        # As Tune does, but with a seed: longer brackets are likelier.
        weights = [math.exp(len(bracket._rungs)) for bracket in self._brackets]  # noqa: SLF001 - its own base class
        self._trial_info[trial.trial_id] = self._random.choices(self._brackets, weights)[0]

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        assert self._metric is not None
        if math.isnan(result.get(self._metric, 0.0)) and result.get(self._time_attr, 0.0) >= self._grace:
            return TrialScheduler.STOP
        return super().on_trial_result(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        self._trial_info.pop(trial.trial_id, None)
