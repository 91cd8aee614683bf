"""Population based training (PBT)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweeps.config.objectives import Objectives
from sweeps.constants import SAVED, STEP
from sweeps.runtime.checkpoint_layout import Origin, no_checkpoint
from sweeps.search.schedulers.decisions import DecisionLog, encoded
from sweeps.search.schedulers.mutation import Mutation
from sweeps.search.schedulers.pausing import PausingScheduler
from sweeps.search.schedulers.places import Places
from sweeps.search.schedulers.rung_positions import amount_in, has_reached
from sweeps.search.schedulers.scheduler import Choice, Exploit, Result, ScheduledTrial, Verdict


class SavedStates:
    """Interface to the states that trials have saved for others. This base class keeps none, since a replay copies no
    trials."""

    def keep(self, trial: str, num_exploits: int, step: int) -> bool:
        """Keep the state that a trial has saved with a report until its next one is kept; return whether others can
        continue from it.

        Args:
            trial: Id of the trial.
            num_exploits: Number of times that it had continued from another trial's state.
            step: Step of the report.
        """
        return False

    def take_over(self, trial: str, origin: Origin) -> bool:
        """Copy the state of another trial to a trial; return whether that succeeded."""
        return False

    def release(self, trial: str) -> None:
        """Remove the saved state of a trial from which no other trial can continue any longer."""


@dataclass(eq=False)
class Member:
    """A trial of the population at its last comparison with the others."""

    trial: ScheduledTrial
    score: float | None = None
    """Value of the trial's metric; larger is better. None before the first comparison."""
    reached: float = 0
    """Resource that the trial had reached."""
    step: int = 0
    """Optimizer steps done."""
    is_saved: bool = False
    """Whether others can continue from the trial's state."""


class PopulationBasedTraining(PausingScheduler):
    """Population based training (Jaderberg et al., 2017, https://arxiv.org/abs/1711.09846).

    Every ``interval`` a trial is compared with the others. One of the best saves its state; one of the worst continues
    from the state of one of the best (exploit), with values near that one's (explore). If more trials than can run at
    once belong to the population, they take turns.

    A searcher suggests the first values, and all values stay within the space. A trial that reports NaN counts as the
    worst. A trial that failed and is started again stays in the population.
    """

    resumes_first = False  # the population is to be complete before trials are compared

    def __init__(
        self,
        resource: str,
        interval: float,
        quantile: float,
        mutation: Mutation,
        *,
        objectives: Objectives,
        population: Callable[[], int],
        states: SavedStates,
        seed: int = 0,
        decisions: DecisionLog | None = None,
    ):
        """
        Args:
            resource: Key of the result in which ``interval`` is counted.
            interval: Resource between two comparisons of a trial.
            quantile: Size of the worst part, which is replaced, and of the best part, which is copied; at most 0.5.
            mutation: Makes the new values.
            population: Number of trials that each comparison waits for, which may change.
            states: The saved states of all trials.
            seed: Seed of the choice among the best.
        """
        super().__init__(objectives, decisions)
        self._resource, self._interval, self._quantile = resource, interval, quantile
        self._mutation, self._population = mutation, population
        self._states, self._seed = states, seed
        self._members: dict[str, Member] = {}
        self._compared_earlier: dict[str, Mapping[str, Any]] = {}
        """The last comparison of each trial of an earlier session that was not added yet."""
        for number, event in self._decisions.events:
            assert number is not None
            self.replay(number, event)

    def replay(self, number: str, event: Mapping[str, Any]) -> None:
        """Restore the state after a decision of an earlier session."""
        self._paused.discard(number)
        if event["event"] == "compared":
            self._compared_earlier[number] = event
            if event["paused"]:
                self._paused.add(number)

    def add(self, trial: ScheduledTrial, places: Places) -> bool:
        if trial.id in self._members:
            return False
        member = self._members[trial.id] = Member(trial)
        waits = super().add(trial, places)
        if (event := self._compared_earlier.pop(trial.id, None)) is not None:
            member.score, member.reached = float(event["score"]), event["trained"]
            member.step, member.is_saved = event["step"], event["saved"]
            self._keep(trial)
        return waits

    def report(self, trial: ScheduledTrial, result: Result, places: Places) -> Verdict | Exploit:
        reached = amount_in(result, self._resource)
        if reached is None or self._objective not in result:
            return Verdict.CONTINUE
        if not has_reached(reached - self._members[trial.id].reached, self._interval):
            return Verdict.CONTINUE
        self.compare(trial, result)
        waits = self._is_incomplete() or any(
            each.trial.status in ("waiting", "paused") for each in self._members.values()
        )
        if (exploit := self._choose_or_exploit(trial, result)) is not None:
            self._paused.add(trial.id)
            return exploit
        if waits and not result.get(SAVED, True):  # after the pause it would begin anew
            raise no_checkpoint(result[STEP])
        self._decisions.record(trial.id, self.event(trial, paused=waits))
        self._keep(trial)
        if waits:
            self._paused.add(trial.id)
        return Verdict.PAUSE if waits else Verdict.CONTINUE

    def _keep(self, trial: ScheduledTrial) -> None:
        """Keep the state of a trial once it is recorded as one of the best; not earlier, since it replaces a previous
        state."""
        member = self._members[trial.id]
        member.is_saved = member.is_saved and self._states.keep(trial.id, trial.num_exploits, member.step)

    def compare(self, trial: ScheduledTrial, result: Result) -> None:
        """Set a trial's score from its report."""
        member, score = self._members[trial.id], self._sign * result[self._objective]
        is_bad = math.isnan(score) or self._violation(result) is not None
        member.score = -math.inf if is_bad else score
        member.reached, member.step = result[self._resource], result[STEP]

    def event(self, trial: ScheduledTrial, *, paused: bool) -> dict[str, Any]:
        """Return the record of a comparison: everything that the scheduler knows about the trial."""
        member = self._members[trial.id]
        assert member.score is not None
        return {
            "event": "compared",
            "score": encoded(member.score),
            "step": member.step,
            "trained": member.reached,
            "perturbed": member.reached,
            "saved": member.is_saved,
            "paused": paused,
        }

    def _is_incomplete(self) -> bool:
        """Whether trials of the population have not begun yet."""
        begun = self._members.keys() | self._decisions.trials
        return len(begun) < self._population()

    def _quantiles(self) -> tuple[list[Member], list[Member]]:
        """Return the worst and the best trials of the population; empty while only one was compared."""
        scores = {
            number: member.score
            for number, member in self._members.items()
            if member.score is not None and member.trial.status != "ended"
        }
        ranked = [self._members[number] for number in sorted(scores, key=lambda number: scores[number])]
        count = min(math.ceil(len(ranked) * self._quantile), len(ranked) // 2)
        # A trial that diverged or violated a limit is no model for others, however few have not.
        return ranked[:count], [each for each in ranked[len(ranked) - count :] if each.score != -math.inf]

    def _choose_or_exploit(self, trial: ScheduledTrial, result: Result) -> Exploit | None:
        """Choose one of the best trials to keep its state, or let one of the worst continue from a kept state.

        Raises:
            TrialFailed: One of the best trials has saved no state.
        """
        member, (worst, best) = self._members[trial.id], self._quantiles()
        if member in best and not result.get(SAVED, True):
            raise no_checkpoint(member.step)
        member.is_saved = member in best
        # A trial that became one of the best after it was last compared has saved nothing.
        donors = sorted((each for each in best if each.is_saved), key=lambda each: each.trial.id)
        if member not in worst or not donors:
            return None
        donor = random.Random(f"{self._seed}/{self.occasion(trial)}/donor").choice(donors)
        origin = Origin(donor.trial.id, donor.step, 1 + trial.num_exploits)
        # The trial's workers have waited since their last report. Without success, it is compared again after the
        # next interval.
        return self._exploit(member, donor, origin) if self._states.take_over(trial.id, origin) else None

    def _exploit(self, member: Member, donor: Member, origin: Origin) -> Exploit:
        trial = member.trial
        parameters = self.new_values(trial, donor.trial)
        member.reached = donor.reached
        decision = self._decisions.with_order(self.event(trial, paused=True))
        return Exploit(trial.id, origin, parameters, decision)

    def occasion(self, trial: ScheduledTrial) -> str:
        """Return a name for a trial's next exploit that seeds random choices; it is the same after a restart."""
        return f"{trial.id}/{1 + trial.num_exploits}"

    def new_values(self, trial: ScheduledTrial, donor: ScheduledTrial) -> dict[str, Any]:
        """Return the values of a trial that continues from a donor's state."""
        return self._mutation.near(donor.parameters, self.occasion(trial))

    def complete(self, trial: ScheduledTrial, result: Result, places: Places) -> None:
        self._states.release(trial.id)

    def ready(self, paused: Sequence[ScheduledTrial], places: Places, *, complete: bool) -> Choice:
        """Return all paused trials, the least trained first; none is stopped. Of equally trained ones, those that have
        taken over a state less often are first: the worst could otherwise take over the same state forever, in turn,
        while those that have it wait."""
        return sorted(paused, key=lambda each: (self._members[each.id].reached, each.num_exploits, each.id)), []
