"""Hyperband with trials that pause and go on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from sweeps.constants import COMPLETED, TRIAL
from sweeps.search.schedulers.concurrency import Pausing
from sweeps.search.schedulers.decisions import STOPS, History, encoded


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

    def is_complete(self) -> bool:
        """Whether all have come to the rung."""
        return self.closed and bool(self.values) and None not in self.values.values()

    def halve(self) -> bool:
        """When all have come to the rung, the best 1/eta of those that were to train towards it go on; whether so."""
        if not self.is_complete():
            return False
        arrived = {trial: value for trial, value in self.values.items() if value is not None}
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

    def __init__(self, resource: str, grace: float, longest: float, eta: float, history: History | None = None):
        """
        Args:
            resource: Key of the result that the rungs are counted in.
            grace: The first rung of the bracket with the most rungs, about.
            longest: What a trial that goes on to its end takes.
            eta: One in eta goes on.
            history: The decisions of earlier sessions, and where this one's are kept.
        """
        super().__init__(history=history)
        self._resource, self._longest, self._eta = resource, longest, eta
        self._most_rungs = max(0, math.floor(math.log(longest / grace) / math.log(eta) + 1e-9))
        self._next_rungs = self._most_rungs
        self._metric, self._sign = "", 1
        self._brackets: list[Bracket] = []
        self._bracket_of: dict[str, Bracket] = {}
        self._done: set[str] = set()
        """Trials that came to their end."""
        for name, event in self._history.events:
            self._apply(name, event)

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        assert metric is not None
        self._metric, self._sign = metric, 1 if mode == "max" else -1
        return True

    # --- what changes its state, now and when that is rebuilt ----------------------------------------------------

    def _decide(self, trial: str | None, event: dict[str, Any]) -> str:
        """Change the state, and keep that."""
        decision = self._apply(trial, event)
        if decision == TrialScheduler.STOP:
            event = {**event, STOPS: True}
        self._history.add(trial, event)
        return decision

    def _apply(self, trial: str | None, event: dict[str, Any]) -> str:
        """The decision on the trial, in Tune's words."""
        decision = TrialScheduler.CONTINUE
        match event:
            case {"event": "closed"}:
                self._brackets[-1].closed = True
            case {"event": "halved", "bracket": index}:
                self._brackets[index].halve()
            case {"event": kind} if trial is not None:
                decision = self._apply_to(trial, kind, event)
        return decision

    def _apply_to(self, trial: str, kind: str, event: dict[str, Any]) -> str:
        self._paused.discard(trial)
        match kind:
            case "added":
                self._bracket_of[trial] = self._open_bracket()
                self._bracket_of[trial].add(trial)
            case "added again":
                self._bracket_of[trial].values[trial] = None
            case "arrived":
                decision = self._bracket_of[trial].arrive(trial, float(event["reached"]), float(event["value"]))
                if decision == TrialScheduler.PAUSE:
                    self._paused.add(trial)
                return decision
            case "left" | "done":
                self._bracket_of[trial].values.pop(trial, None)
                if kind == "done":
                    self._done.add(trial)
        return TrialScheduler.CONTINUE

    def _open_bracket(self) -> Bracket:
        """The bracket that is being filled."""
        if not self._brackets or self._brackets[-1].closed:
            self._brackets.append(self._new_bracket())
        return self._brackets[-1]

    def _new_bracket(self) -> Bracket:
        count = self._next_rungs
        self._next_rungs = count - 1 if count else self._most_rungs
        size = math.ceil((self._most_rungs + 1) / (count + 1) * self._eta**count - 1e-9)
        return Bracket(size, [self._longest * self._eta ** (index - count) for index in range(count)], self._eta)

    # --- what Tune says ------------------------------------------------------------------------------------------

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Put it into the bracket that is being filled; one that failed and is started again, back into its own."""
        self.take_up(tune_controller, trial)
        name = trial.config[TRIAL]
        own = self._bracket_of.get(name)
        if own is None:
            self._decide(name, {"event": "added"})
        elif name not in own.values and name not in own.losers and name not in self._done:
            self._decide(name, {"event": "added again"})

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        self._history.hear(trial, result)
        if self._resource not in result or self._metric not in result or self._history.goes_on_later():
            return TrialScheduler.CONTINUE
        name, reached = trial.config[TRIAL], result[self._resource]
        bracket = self._bracket_of[name]
        if name not in bracket.values or reached < bracket.rung():
            return TrialScheduler.STOP if name in bracket.losers else TrialScheduler.CONTINUE
        value = self._sign * result[self._metric]
        value = -math.inf if math.isnan(value) else value
        level = bracket.level
        decision = self._decide(name, {"event": "arrived", "reached": encoded(reached), "value": encoded(value)})
        if bracket.level > level:
            _hold_back(tune_controller)
        return decision

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        if not self._history.goes_on_later(result):
            self._drop(tune_controller, trial, "done" if result.get(COMPLETED) else "left")

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        if not self._history.goes_on_later():
            self._drop(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """If it is started again, it is added again at once."""
        if not self._history.goes_on_later():
            self._drop(tune_controller, trial)

    def _drop(self, tune_controller: Any, trial: Trial, how: str = "left") -> None:
        """Its bracket does not wait for it any longer."""
        name = trial.config[TRIAL]
        if name in self._bracket_of[name].values:
            self._decide(name, {"event": how})
            _hold_back(tune_controller)

    def ready(self, tune_controller: Any, paused: list[Trial], *, complete: bool) -> list[Trial]:
        """Those that were among the best of their rung, the furthest first; stops the others."""
        if complete and self._brackets and not self._brackets[-1].closed:
            self._decide(None, {"event": "closed"})
        for index, bracket in enumerate(self._brackets):
            if bracket.is_complete():
                self._decide(None, {"event": "halved", "bracket": index})
        going_on = []
        for trial in paused:
            name = trial.config[TRIAL]
            bracket = self._bracket_of[name]
            if name in bracket.losers:
                tune_controller.stop_trial(trial)
            elif bracket.values[name] is None:
                going_on.append(trial)
        return sorted(going_on, key=lambda trial: (-self._bracket_of[trial.config[TRIAL]].level, trial.config[TRIAL]))

    def debug_string(self) -> str:
        return f"Hyperband: {len(self._brackets)} brackets"


def _hold_back(tune_controller: Any) -> None:
    """Tune asks for new trials before it asks which of the paused ones may go on."""
    tune_controller.search_alg.searcher.held_back = True
