"""Asynchronous successive halving, by Tune."""

from __future__ import annotations

import math
import random
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler

from sweeps.search.schedulers.decisions import STOPS, STOPS_IF_LONGER, History, Named, encoded

NEVER = 1e15
"""Beyond every trial, in any unit: the last rung bounds nothing, since a trial ends by itself, and one that did must
not be told apart from one that reached the last rung."""


class Asha(AsyncHyperBandScheduler):
    """Stops a trial at a rung if it is worse than the best 1/eta of those that reached that rung before it
    (Li et al., 2018, https://arxiv.org/abs/1810.05934). A report beyond several rungs counts at the highest of them.
    A trial that reports NaN ends there, once it has had its grace."""

    def __init__(
        self, resource: str, grace: float, eta: float, brackets: int, seed: int, history: History | None = None
    ):
        super().__init__(
            time_attr=resource,
            max_t=NEVER,  # type: ignore[arg-type]  # any number does
            grace_period=grace,  # type: ignore[arg-type]
            reduction_factor=eta,
            brackets=brackets,
            stop_last_trials=False,  # else a report beyond a rung that was missed counts at that one later
        )
        self._grace, self._seed = grace, seed
        self._history = history or History()
        for name, event in self._history.events:
            assert name is not None
            self._bracket(name).on_result(Named(name), float(event["reached"]), float(event["reward"]))

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Nothing to do: its bracket follows from its number."""

    def _bracket(self, trial: str) -> Any:
        """As Tune chooses it, but by a seed: longer brackets are likelier."""
        weights = [math.exp(len(bracket._rungs)) for bracket in self._brackets]  # noqa: SLF001 - its own base class
        return random.Random(f"{self._seed}/{trial}/bracket").choices(self._brackets, weights)[0]

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        assert self._metric is not None
        self._history.hear(trial, result)
        if math.isnan(result.get(self._metric, 0.0)) and result.get(self._time_attr, 0.0) >= self._grace:
            return TrialScheduler.STOP
        return TrialScheduler.STOP if self._is_worse(trial, result) else TrialScheduler.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Its last report counts, too; and what is decided on it, should the trial become a longer one."""
        self._is_worse(trial, result, STOPS_IF_LONGER)

    def _is_worse(self, trial: Trial, result: dict[str, Any], consequence: str = STOPS) -> bool:
        """Whether a report is worse than most at its rung; it is kept, if it is the trial's first there."""
        assert self._metric is not None
        if self._time_attr not in result or math.isnan(result.get(self._metric, math.nan)):
            return False
        named = Named.of(trial)
        bracket = self._bracket(named.trial_id)
        before = _reached(bracket, named)
        reached, reward = result[self._time_attr], self._metric_op * result[self._metric]
        stops: bool = bracket.on_result(named, reached, reward) == TrialScheduler.STOP
        if _reached(bracket, named) > before:
            event = {"reached": encoded(reached), "reward": encoded(reward), consequence: stops}
            self._history.add(named.trial_id, event)
        return stops

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Nothing to do: what it reached stays."""


def _reached(bracket: Any, trial: Named) -> int:
    """Number of rungs at which a trial was compared."""
    return sum(trial.trial_id in recorded for _, recorded in bracket._rungs)  # noqa: SLF001 - of its own base class
