"""Hyperband with trials that pause and go on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from sweeps.search.places import Pausing


@dataclass
class Bracket:
    """Trials that are compared at the same rungs."""

    size: int
    rungs: list[float]
    """In the unit of the resource, ascending; beyond the last one the trials that are left train to their end."""
    eta: float
    closed: bool = False
    """No further trial will join."""
    level: int = 0
    """Index of the rung that its trials train towards."""
    entered: int = 0
    """Trials that were to train towards it."""
    values: dict[str, float | None] = field(default_factory=dict)
    """By trial: the value at that rung (larger is better), or None until it gets there. Trials that ended are gone."""
    losers: set[str] = field(default_factory=set)
    """Trials that are to be stopped."""

    def add(self, trial: str) -> None:
        self.values[trial] = None
        self.entered += 1
        self.closed = self.closed or self.entered == self.size

    def rung(self) -> float:
        return self.rungs[self.level] if self.level < len(self.rungs) else math.inf

    def arrive(self, trial: str, reached: float, value: float) -> str:
        """A report of a trial: what is to become of it, in Tune's words."""
        while trial in self.values and reached >= self.rung():
            self.values[trial] = value
            if not self.halve():
                return TrialScheduler.PAUSE
        return TrialScheduler.STOP if trial in self.losers else TrialScheduler.CONTINUE

    def halve(self) -> bool:
        """When all have come to the rung, the best 1/eta of those that were to train towards it go on; whether so."""
        arrived = {trial: value for trial, value in self.values.items() if value is not None}
        if not self.closed or not arrived or len(arrived) < len(self.values):
            return False
        best = sorted(arrived, key=lambda trial: arrived[trial], reverse=True)
        count = max(1, math.floor(self.entered / self.eta + 1e-9))
        self.losers |= set(best[count:])
        self.values = dict.fromkeys(best[:count])
        self.entered = len(self.values)
        self.level += 1
        return True


class Hyperband(Pausing, FIFOScheduler):
    """Hyperband (Li et al., 2017, https://arxiv.org/abs/1603.06560): brackets of trials, from many that are compared
    early to few that train to their end. In a bracket, trials pause at a rung until all have come to it.

    Not Tune's own: that one rounds rungs to whole numbers, halves a bracket before it is filled when trials come one
    after another, and moves a trial that failed and is started again into another bracket.

    A trial that reports NaN at a rung is the worst there. The last bracket may be filled only in part: it is compared
    when no further trials come.
    """

    def __init__(self, resource: str, grace: float, longest: float, eta: float):
        """
        Args:
            resource: Key of the result that the rungs are counted in.
            grace: The first rung of the bracket with the most rungs, about.
            longest: What a trial that goes on to its end takes.
            eta: One in eta goes on.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._resource, self._longest, self._eta = resource, longest, eta
        self._most_rungs = max(0, math.floor(math.log(longest / grace) / math.log(eta) + 1e-9))
        self._next_rungs = self._most_rungs
        self._metric, self._sign = "", 1
        self._brackets: list[Bracket] = []
        self._bracket_of: dict[str, Bracket] = {}

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        assert metric is not None
        self._metric, self._sign = metric, 1 if mode == "max" else -1
        return True

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Put it into the bracket that is being filled; one that failed and is started again, back into its own."""
        own = self._bracket_of.get(trial.trial_id)
        if own is not None:
            own.values[trial.trial_id] = None
            return
        if not self._brackets or self._brackets[-1].closed:
            self._brackets.append(self._new_bracket())
        self._brackets[-1].add(trial.trial_id)
        self._bracket_of[trial.trial_id] = self._brackets[-1]

    def _new_bracket(self) -> Bracket:
        count = self._next_rungs
        self._next_rungs = count - 1 if count else self._most_rungs
        size = math.ceil((self._most_rungs + 1) / (count + 1) * self._eta**count - 1e-9)
        return Bracket(size, [self._longest * self._eta ** (index - count) for index in range(count)], self._eta)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        if self._resource not in result or self._metric not in result:
            return TrialScheduler.CONTINUE
        value = self._sign * result[self._metric]
        value = -math.inf if math.isnan(value) else value
        bracket = self._bracket_of[trial.trial_id]
        level = bracket.level
        decision = bracket.arrive(trial.trial_id, result[self._resource], value)
        if bracket.level > level:  # Tune asks for new trials before it asks which of the paused ones may go on
            tune_controller.search_alg.searcher.held_back = True
        return decision

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        self._drop(trial)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        self._drop(trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """If it is started again, it is added again at once."""
        self._drop(trial)

    def _drop(self, trial: Trial) -> None:
        bracket = self._bracket_of[trial.trial_id]
        bracket.values.pop(trial.trial_id, None)
        bracket.losers.discard(trial.trial_id)

    def ready(self, tune_controller: Any, paused: list[Trial], *, complete: bool) -> list[Trial]:
        """Those that were among the best of their rung, the furthest first; stops the others."""
        if self._brackets and complete:
            self._brackets[-1].closed = True
        for bracket in self._brackets:
            bracket.halve()
        going_on = []
        for trial in paused:
            bracket = self._bracket_of[trial.trial_id]
            if trial.trial_id in bracket.losers:
                tune_controller.stop_trial(trial)
            elif bracket.values[trial.trial_id] is None:
                going_on.append(trial)
        return sorted(going_on, key=lambda trial: -self._bracket_of[trial.trial_id].level)

    def debug_string(self) -> str:
        return f"Hyperband: {len(self._brackets)} brackets"
