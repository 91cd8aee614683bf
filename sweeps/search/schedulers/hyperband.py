"""Hyperband, whose trials are paused at a rung until all trials of their bracket have reached it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from sweeps.constants import COMPLETED, TRIAL
from sweeps.search.schedulers.decisions import BROKEN, PAUSES, STOPS, DecisionLog, encoded
from sweeps.search.schedulers.pausing import PausingScheduler, limiter_of


@dataclass
class Bracket:
    """Trials that are compared at the same rungs."""

    size: int
    rungs: list[float]
    """Resource of each rung, ascending; the trials that are left after the last one train to their end."""
    eta: float
    closed: bool = False
    """No further trial will join."""
    level: int = 0
    """Index of the next rung."""
    entered: int = 0
    """Number of trials that were to reach the next rung."""
    values: dict[str, float | None] = field(default_factory=dict)
    """Value of each trial at the next rung (larger is better); None until the trial reaches it. Trials that ended are
    removed."""
    losers: set[str] = field(default_factory=set)
    """Trials to stop."""

    def add(self, trial: str) -> None:
        self.values[trial] = None
        self.entered += 1
        self.closed = self.closed or self.entered == self.size

    def rung(self) -> float:
        return self.rungs[self.level] if self.level < len(self.rungs) else math.inf

    def arrive(self, trial: str, reached: float, value: float) -> str:
        """Add a trial's report. Returns Tune's decision on the trial."""
        while trial in self.values and reached >= self.rung():
            self.values[trial] = value
            if not self.halve():
                return TrialScheduler.PAUSE
        return TrialScheduler.STOP if trial in self.losers else TrialScheduler.CONTINUE

    def is_complete(self) -> bool:
        """Whether all trials have reached the next rung."""
        return self.closed and bool(self.values) and None not in self.values.values()

    def halve(self) -> bool:
        """Keep the best 1/eta for the next rung, once all have reached this one. Returns whether they have."""
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


class Hyperband(PausingScheduler):
    """Hyperband (Li et al., 2017, https://arxiv.org/abs/1603.06560).

    Trials are put into brackets, from one with many trials that are compared early to one with few trials that train
    to their end. In a bracket, trials are paused at a rung until all have reached it. A trial that reports NaN at a
    rung is the worst there. The last bracket may not be full; it is compared when no further trials are added.

    It replaces Tune's Hyperband, which rounds rungs to whole numbers, halves a bracket before it is full when trials
    are added one after another, and moves a failed trial that is started again into another bracket.
    """

    def __init__(self, resource: str, grace: float, longest: float, eta: float, decisions: DecisionLog | None = None):
        """
        Args:
            resource: Key of the result that the rungs are counted in.
            grace: About the first rung of the bracket with the most rungs.
            longest: Resource of a trial that trains to its end.
            eta: One of ``eta`` trials goes on.
            decisions: As in ``RecordedScheduler``.
        """
        super().__init__(decisions)
        self._resource, self._longest, self._eta = resource, longest, eta
        self._most_rungs = max(0, math.floor(math.log(longest / grace) / math.log(eta) + 1e-9))
        self._next_rungs = self._most_rungs
        self._brackets: list[Bracket] = []
        self._bracket_of: dict[str, Bracket] = {}
        self._done: set[str] = set()
        """Trials that trained to their end."""
        for name, event in self._decisions.events:
            self._apply(name, event)

    # --- changes of the state, by decisions of this session and of earlier ones ---------------------------------

    def _decide(self, trial: str | None, event: dict[str, Any]) -> str:
        """Change the state and record the decision."""
        decision = self._apply(trial, event)
        if decision == TrialScheduler.STOP:
            event = {**event, STOPS: True}
        elif decision == TrialScheduler.PAUSE:
            event = {**event, PAUSES: True}
        self._decisions.record(trial, event)
        return decision

    def repeat(self, number: str | None, event: Mapping[str, Any]) -> bool | None:
        decision = self._apply(number, dict(event))
        # Earlier versions did not record that a decision pauses its trial.
        return decision == (TrialScheduler.PAUSE if event.get(PAUSES) else TrialScheduler.STOP)

    def explain(self, number: str, event: Mapping[str, Any]) -> str | None:
        match event:
            case {"event": "added"}:
                return "it joined the open bracket"
            case {"event": "arrived", "value": value}:
                bracket = self._bracket_of[number]
                before = sum(each is not None for each in bracket.values.values())
                return (
                    f"at the rung of {bracket.rung():g} {self._resource} its {self._objective} was "
                    f"{self._sign * float(value):.6g}; {before} of {len(bracket.values)} trials of its bracket were "
                    f"there before, of which the best 1/{self._eta:g} go on when all are"
                )
            case {"broken": limit}:
                return str(limit)
            case {"event": "resumed"}:
                return "it was among the best of its bracket, and went on"
            case {"event": "left"} if number in self._bracket_of[number].losers:
                return "it was not among the best of its bracket"
        return None

    def _apply(self, trial: str | None, event: dict[str, Any]) -> str:
        """Change the state. Returns Tune's decision on the trial."""
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
            case "broken":
                return TrialScheduler.STOP
            case "left" | "done":
                self._bracket_of[trial].values.pop(trial, None)
                if kind == "done":
                    self._done.add(trial)
        return TrialScheduler.CONTINUE

    def _open_bracket(self) -> Bracket:
        """The bracket that is not full yet."""
        if not self._brackets or self._brackets[-1].closed:
            self._brackets.append(self._new_bracket())
        return self._brackets[-1]

    def _new_bracket(self) -> Bracket:
        count = self._next_rungs
        self._next_rungs = count - 1 if count else self._most_rungs
        size = math.ceil((self._most_rungs + 1) / (count + 1) * self._eta**count - 1e-9)
        # Not the product with a negative power: 729 * 3.0**-5 is above 3, so a report at 3 would not count.
        return Bracket(size, [self._longest / self._eta ** (count - index) for index in range(count)], self._eta)

    # --- calls from Tune -----------------------------------------------------------------------------------------

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Put a new trial into the open bracket, and one that failed and is started again back into its own."""
        self.restore_trial(tune_controller, trial)
        name = trial.config[TRIAL]
        own = self._bracket_of.get(name)
        if own is None:
            self._decide(name, {"event": "added"})
        elif name not in own.values and name not in own.losers and name not in self._done:
            self._decide(name, {"event": "added again"})

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        self._decisions.record_report(trial, result)
        if self._decisions.is_resumed_later():
            return TrialScheduler.CONTINUE
        if (broken := self._decisions.violation(result)) is not None:  # it cannot be the best any more
            return self._decide(trial.config[TRIAL], {"event": BROKEN, BROKEN: broken})
        if self._resource not in result or self._objective not in result:
            return TrialScheduler.CONTINUE
        name, reached = trial.config[TRIAL], result[self._resource]
        bracket = self._bracket_of[name]
        if name not in bracket.values or reached < bracket.rung():
            return TrialScheduler.STOP if name in bracket.losers else TrialScheduler.CONTINUE
        value = self._sign * result[self._objective]
        value = -math.inf if math.isnan(value) else value
        level = bracket.level
        decision = self._decide(name, {"event": "arrived", "reached": encoded(reached), "value": encoded(value)})
        if bracket.level > level:
            limiter_of(tune_controller).hold_new_trials()
        return decision

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        if not self._decisions.is_resumed_later(result):
            self._drop(tune_controller, trial, "done" if result.get(COMPLETED) else "left")

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        if not self._decisions.is_resumed_later():
            self._drop(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Remove a failed trial from its bracket; Tune adds it again at once if it is started again."""
        if not self._decisions.is_resumed_later():
            self._drop(tune_controller, trial)

    def _drop(self, tune_controller: Any, trial: Trial, how: str = "left") -> None:
        """Remove a trial from its bracket, which no longer waits for it."""
        name = trial.config[TRIAL]
        if name in self._bracket_of[name].values:
            self._decide(name, {"event": how})
            limiter_of(tune_controller).hold_new_trials()

    @property
    def depends_on_time(self) -> bool:
        return False

    def ready(self, tune_controller: Any, paused: list[Trial], *, complete: bool) -> list[Trial]:
        """The paused trials that were among the best of their rung, the furthest first; the others are stopped."""
        if complete and self._brackets and not self._brackets[-1].closed:
            self._decide(None, {"event": "closed"})
        for index, bracket in enumerate(self._brackets):
            if bracket.is_complete():
                self._decide(None, {"event": "halved", "bracket": index})
        continuing = []
        for trial in paused:
            name = trial.config[TRIAL]
            bracket = self._bracket_of[name]
            if name in bracket.losers:
                tune_controller.stop_trial(trial)
            elif bracket.values[name] is None:
                continuing.append(trial)
        return sorted(continuing, key=lambda trial: (-self._bracket_of[trial.config[TRIAL]].level, trial.config[TRIAL]))
