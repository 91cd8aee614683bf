"""Hyperband, which pauses trials at a rung until all trials of their bracket have reached it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweeps.config.objectives import Objectives
from sweeps.constants import COMPLETED
from sweeps.search.schedulers.decisions import BROKEN, PAUSES, STOPS, DecisionLog, encoded
from sweeps.search.schedulers.pausing import PausingScheduler
from sweeps.search.schedulers.places import Places
from sweeps.search.schedulers.rung_positions import amount_in, has_reached
from sweeps.search.schedulers.scheduler import Choice, Result, ScheduledTrial, Verdict
from sweeps.texts.wording import amount


@dataclass
class Bracket:
    """Trials that are compared at the same rungs."""

    size: int
    rungs: list[float]
    """Resource of each rung, ascending; the trials that remain after the last one train to their end."""
    eta: float
    closed: bool = False
    """Whether no further trial will join."""
    level: int = 0
    """Index of the next rung."""
    entered: int = 0
    """Number of trials that were expected at the next rung."""
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

    def arrive(self, trial: str, reached: float, value: float) -> Verdict:
        """Add a trial's report; return the decision about the trial."""
        while trial in self.values and has_reached(reached, self.rung()):
            self.values[trial] = value
            if not self.halve():
                return Verdict.PAUSE
        return Verdict.STOP if trial in self.losers else Verdict.CONTINUE

    def is_complete(self) -> bool:
        """Whether all trials have reached the next rung."""
        return self.closed and bool(self.values) and None not in self.values.values()

    def halve(self) -> bool:
        """Keep the best 1/eta for the next rung once all have reached this one; return whether they have."""
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

    Trials are put into brackets, from one with many trials that are compared early to one with few trials that train to
    their end. In a bracket, trials are paused at a rung until all have reached it. A trial that reports NaN at a rung
    counts as the worst there. The last bracket may not be full; its trials are compared when no further ones are added.

    It replaces Tune's Hyperband, which rounds rungs to whole numbers, halves a bracket before it is full when trials
    are added one after another, and moves a failed trial that is started again into another bracket.
    """

    def __init__(
        self,
        resource: str,
        grace: float,
        longest: float,
        eta: float,
        objectives: Objectives,
        decisions: DecisionLog | None = None,
    ):
        """
        Args:
            resource: Key of the result in which the rungs are counted.
            grace: Approximate first rung of the bracket with the most rungs.
            longest: Resource of a trial that trains to its end.
            eta: One in ``eta`` trials continues.
        """
        super().__init__(objectives, decisions)
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

    def _decide(self, trial: str | None, event: dict[str, Any]) -> Verdict:
        """Change the state and record the decision."""
        decision = self._apply(trial, event)
        if decision == Verdict.STOP:
            event = {**event, STOPS: True}
        elif decision == Verdict.PAUSE:
            event = {**event, PAUSES: True}
        self._decisions.record(trial, event)
        return decision

    def repeat(self, number: str | None, event: Mapping[str, Any]) -> bool | None:
        decision = self._apply(number, dict(event))
        # Earlier versions did not record that a decision pauses its trial.
        return decision == (Verdict.PAUSE if event.get(PAUSES) else Verdict.STOP)

    def explain(self, number: str, event: Mapping[str, Any]) -> str | None:
        match event:
            case {"event": "added"}:
                return "it joined the open bracket"
            case {"event": "arrived", "value": value}:
                bracket = self._bracket_of[number]
                before = sum(each is not None for each in bracket.values.values())
                return (
                    f"at the rung of {amount(bracket.rung(), self._resource)} its {self._objective} was "
                    f"{self._sign * float(value):.6g}; {before} of {len(bracket.values)} trials of its bracket were "
                    f"there before, of which the best 1/{self._eta:g} continue when all are"
                )
            case {"broken": limit}:
                return str(limit)
            case {"event": "resumed"}:
                return "it was among the best of its bracket, and continued"
            case {"event": "left"} if number in self._bracket_of[number].losers:
                return "it was not among the best of its bracket"
        return None

    def _apply(self, trial: str | None, event: dict[str, Any]) -> Verdict:
        """Change the state; return the decision about the trial."""
        if trial is None:
            if event["event"] == "closed":
                self._brackets[-1].closed = True
            else:
                self._brackets[event["bracket"]].halve()
            return Verdict.CONTINUE
        self._paused.discard(trial)
        match event["event"]:
            case "added":
                self._bracket_of[trial] = self._open_bracket()
                self._bracket_of[trial].add(trial)
            case "added again":
                self._bracket_of[trial].values[trial] = None
            case "arrived":
                decision = self._bracket_of[trial].arrive(trial, float(event["reached"]), float(event["value"]))
                if decision == Verdict.PAUSE:
                    self._paused.add(trial)
                return decision
            case "broken":  # its bracket does not wait for it, even if its driver dies before it has stopped the trial
                self._bracket_of[trial].values.pop(trial, None)
                return Verdict.STOP
            case "left" | "done":
                self._bracket_of[trial].values.pop(trial, None)
                if event["event"] == "done":
                    self._done.add(trial)
        return Verdict.CONTINUE

    def _open_bracket(self) -> Bracket:
        """Return the bracket that is not full yet."""
        if not self._brackets or self._brackets[-1].closed:
            self._brackets.append(self._new_bracket())
        return self._brackets[-1]

    def _new_bracket(self) -> Bracket:
        count = self._next_rungs
        self._next_rungs = count - 1 if count else self._most_rungs
        size = math.ceil((self._most_rungs + 1) / (count + 1) * self._eta**count - 1e-9)
        # Not the product with a negative power: 729 * 3.0**-5 is above 3, so a report at 3 would not count.
        return Bracket(size, [self._longest / self._eta ** (count - index) for index in range(count)], self._eta)

    # --- what happens to trials ----------------------------------------------------------------------------------

    def add(self, trial: ScheduledTrial, places: Places) -> bool:
        """Put a new trial into the open bracket, and a retried one back into its own."""
        waits = super().add(trial, places)
        own = self._bracket_of.get(trial.id)
        if own is None:
            self._decide(trial.id, {"event": "added"})
        elif trial.id not in own.values and trial.id not in own.losers and trial.id not in self._done:
            self._decide(trial.id, {"event": "added again"})
        return waits

    def report(self, trial: ScheduledTrial, result: Result, places: Places) -> Verdict:
        if (broken := self._violation(result)) is not None:  # it cannot be the best any more
            places.holds_new = True
            return self._decide(trial.id, {"event": BROKEN, BROKEN: broken})
        reached, bracket = amount_in(result, self._resource), self._bracket_of[trial.id]
        if reached is None or self._objective not in result:
            return Verdict.CONTINUE
        if trial.id not in bracket.values or not has_reached(reached, bracket.rung()):
            return Verdict.STOP if trial.id in bracket.losers else Verdict.CONTINUE
        value = self._sign * result[self._objective]
        value = -math.inf if math.isnan(value) else value
        level = bracket.level
        verdict = self._decide(trial.id, {"event": "arrived", "reached": encoded(reached), "value": encoded(value)})
        if bracket.level > level:
            places.holds_new = True
        return verdict

    def complete(self, trial: ScheduledTrial, result: Result, places: Places) -> None:
        self._drop(trial, places, "done" if result.get(COMPLETED) else "left")

    def leave(self, trial: ScheduledTrial, places: Places) -> None:
        """Remove a trial from its bracket."""
        self._drop(trial, places, "left")

    def _drop(self, trial: ScheduledTrial, places: Places, how: str) -> None:
        """Remove a trial from its bracket, which no longer waits for it."""
        if trial.id in self._bracket_of[trial.id].values:
            self._decide(trial.id, {"event": how})
            places.holds_new = True

    def ready(self, paused: Sequence[ScheduledTrial], places: Places, *, complete: bool) -> Choice:
        """Return the paused trials that were among the best of their rung, furthest first, and the others of that rung
        to stop."""
        if complete and self._brackets and not self._brackets[-1].closed:
            self._decide(None, {"event": "closed"})
        for index, bracket in enumerate(self._brackets):
            if bracket.is_complete():
                self._decide(None, {"event": "halved", "bracket": index})
        continuing, losers = [], []
        for trial in paused:
            bracket = self._bracket_of[trial.id]
            if trial.id in bracket.losers:
                losers.append(trial)
            elif bracket.values[trial.id] is None:
                continuing.append(trial)
        return sorted(continuing, key=lambda trial: (-self._bracket_of[trial.id].level, trial.id)), losers
