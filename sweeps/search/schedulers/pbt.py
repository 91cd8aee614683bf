"""Population based training (PBT)."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from sweeps.compat import ray_tune
from sweeps.constants import ORIGIN, PARAMETERS, STEP, TRIAL
from sweeps.runtime.checkpoint_layout import Origin, is_pinned, pin, release, take_over
from sweeps.search.schedulers.decisions import DecisionLog, encoded
from sweeps.search.schedulers.mutation import Mutation
from sweeps.search.schedulers.pausing import PausingScheduler
from sweeps.storage.object_store import ObjectStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Exploit:
    """A trial continues from another trial's state, with changed values."""

    trial: str
    origin: Origin
    parameters: Mapping[str, Any]
    """Its values from now on, by path."""
    changed: Mapping[str, Any]
    """Values that differ from those before."""
    decision: Mapping[str, Any] = field(default_factory=dict)
    """The scheduler's decision. It is recorded together with the rest, as a whole or not at all."""


@dataclass
class Member:
    """A trial of the population, as it was when it was last compared with the others."""

    score: float | None = None
    """Its metric; larger is better. None before the first comparison."""
    reached: float = 0
    """Resource that it had reached."""
    step: int = 0
    """Optimizer steps done."""
    is_saved: bool = False
    """Whether others can continue from its checkpoint."""
    requested: Any = None
    """The requested checkpoint; None once it was waited for."""


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
        population: Callable[[], int],
        trials: Path | ObjectStore,
        exploited: Callable[[Exploit], None],
        seed: int = 0,
        decisions: DecisionLog | None = None,
    ):
        """
        Args:
            resource: Key of the result that ``interval`` is counted in.
            interval: Resource between two comparisons of a trial.
            quantile: Share of the population that is replaced, and that is copied; at most 0.5.
            mutation: Makes the new values.
            population: Number of trials that there will be, which may be raised.
            trials: Folder of all trials' checkpoints.
            exploited: Called with every exploit.
            seed: Seed of the choice among the best.
            decisions: As in ``RecordedScheduler``.
        """
        super().__init__(decisions)
        self._resource, self._interval, self._quantile = resource, interval, quantile
        self._mutation, self._population = mutation, population
        self._trials, self._exploited, self._seed = trials, exploited, seed
        self._members: dict[Trial, Member] = {}
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

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        if trial in self._members:
            return
        member = self._members[trial] = Member()
        if self.restore_trial(tune_controller, trial):
            event = self._compared_earlier.pop(trial.config[TRIAL], None)
            if event is not None:
                member.score, member.reached = float(event["score"]), event["trained"]
                member.step, member.is_saved = event["step"], event["saved"]
                if member.is_saved:
                    self._pin_again(trial, member.step)

    def _pin_again(self, trial: Trial, step: int) -> None:
        """Pin a checkpoint that was requested; its driver may have died before it was pinned."""
        number, exploits = trial.config[TRIAL], _num_exploits(trial)
        try:
            if not is_pinned(self._trials, Origin(number, step, exploits)):
                pin(self._trials, number, exploits, step)
        except OSError as error:
            logger.warning("no trial can go on from trial %s's step %s: %s", number, step, error)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        self._decisions.record_report(trial, result)
        if self._decisions.is_resumed_later():  # the trial is compared in the next session, with all others
            return TrialScheduler.CONTINUE
        if self._objective not in result or self._resource not in result:
            return TrialScheduler.CONTINUE
        if result[self._resource] - self._members[trial].reached < self._interval:
            return TrialScheduler.CONTINUE
        self.compare(trial, result)
        waits = self._is_incomplete() or any(
            each.status in (Trial.PENDING, Trial.PAUSED) for each in tune_controller.get_trials()
        )
        worst, best = self._quantiles()
        if self._save_or_exploit(tune_controller, trial, worst, best, result):
            self._paused.add(trial.config[TRIAL])
            return TrialScheduler.NOOP
        self._decisions.record(trial.config[TRIAL], self.event(trial, paused=waits))
        if waits:
            self._paused.add(trial.config[TRIAL])
        return TrialScheduler.PAUSE if waits else TrialScheduler.CONTINUE

    def compare(self, trial: Trial, result: Mapping[str, Any]) -> None:
        """Set a trial's score, by its report."""
        member, score = self._members[trial], self._sign * result[self._objective]
        is_bad = math.isnan(score) or self._decisions.violation(result) is not None
        member.score = -math.inf if is_bad else score
        member.reached, member.step = result[self._resource], result[STEP]

    def event(self, trial: Trial, *, paused: bool) -> dict[str, Any]:
        """The record of a comparison: all that the scheduler knows of the trial."""
        member = self._members[trial]
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
        begun = {trial.config[TRIAL] for trial in self._members} | self._decisions.trials
        return len(begun) < self._population()

    def _quantiles(self) -> tuple[list[Trial], list[Trial]]:
        """The worst and the best trials of the population; none while only one was compared."""
        scores = {
            trial: member.score
            for trial, member in self._members.items()
            if member.score is not None and not trial.is_finished()  # type: ignore[no-untyped-call]
        }
        ranked = sorted(scores, key=lambda trial: scores[trial])
        count = min(math.ceil(len(ranked) * self._quantile), len(ranked) // 2)
        return ranked[:count], ranked[len(ranked) - count :]

    def _save_or_exploit(
        self, tune_controller: Any, trial: Trial, worst: list[Trial], best: list[Trial], result: dict[str, Any]
    ) -> bool:
        """Save one of the best trials, and let one of the worst continue from a saved one.

        Returns:
            Whether the trial continues from another trial's state.
        """
        member = self._members[trial]
        member.requested = ray_tune.request_checkpoint(tune_controller, trial, result) if trial in best else None
        member.is_saved = member.requested is not None
        # A trial that became one of the best after it was last compared has saved nothing.
        donors = sorted((each for each in best if self._members[each].is_saved), key=lambda each: each.config[TRIAL])
        if trial not in worst or not donors:
            return False
        donor = random.Random(f"{self._seed}/{self.occasion(trial)}/donor").choice(donors)
        if not self._wait_for_checkpoint(self._members[donor]):
            return False
        origin = Origin(donor.config[TRIAL], self._members[donor].step, 1 + _num_exploits(trial))
        if not self._take_over(trial, origin):
            return False
        self._exploit(tune_controller, trial, donor, origin)
        return True

    def _take_over(self, trial: Trial, origin: Origin) -> bool:
        """Give a trial another one's checkpoint; returns whether that has succeeded.

        Nothing else changes these folders: the trial's workers wait since their last report, and the other trial pins
        its next checkpoint only when it is asked to from here.
        """
        number, mode = trial.config[TRIAL], "max" if self._sign > 0 else "min"
        try:
            if not is_pinned(self._trials, origin):
                return False
            take_over(self._trials, number, origin, self._objective, mode)
        except OSError as error:  # it is compared again after the next interval
            logger.warning("trial %s does not go on from trial %s's state: %s", number, origin.trial, error)
            return False
        return True

    def _wait_for_checkpoint(self, member: Member) -> bool:
        """Wait until a trial has saved its state. Returns whether it has."""
        if member.requested is not None:
            metrics = ray_tune.checkpoint_metrics(member.requested)
            if metrics is None:
                return False
            member.step, member.requested = metrics[STEP], None
        return True

    def _exploit(self, tune_controller: Any, trial: Trial, donor: Trial, origin: Origin) -> None:
        number, before = trial.config[TRIAL], trial.config[PARAMETERS]
        parameters = self.new_values(trial, donor)
        tune_controller.pause_trial(trial, should_checkpoint=False)
        trial.set_config({TRIAL: number, PARAMETERS: parameters, ORIGIN: origin})  # type: ignore[no-untyped-call]
        ray_tune.forget_checkpoint(trial)  # the trial's folder holds the checkpoint that it continues from
        self._members[trial].reached = self._members[donor].reached
        changed = {path: value for path, value in parameters.items() if before.get(path) != value}
        decision = self._decisions.with_order(self.event(trial, paused=True))
        self._exploited(Exploit(number, origin, parameters, changed, decision))

    def occasion(self, trial: Trial) -> str:
        """A name for a trial's next exploit, by which random choices are seeded; it is the same after a restart."""
        return f"{trial.config[TRIAL]}/{1 + _num_exploits(trial)}"

    def new_values(self, trial: Trial, donor: Trial) -> dict[str, Any]:
        """The values of a trial that continues from a donor's state."""
        return self._mutation.near(donor.config[PARAMETERS], self.occasion(trial))

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        if not self._decisions.is_resumed_later(result):
            release(self._trials, trial.config[TRIAL])

    def ready(self, tune_controller: Any, paused: list[Trial], *, complete: bool) -> list[Trial]:
        """All paused trials; those that have trained least come first."""
        return sorted(paused, key=lambda trial: (self._members[trial].reached, trial.config[TRIAL]))


def _num_exploits(trial: Trial) -> int:
    """Number of times that a trial has continued from another trial's state."""
    return int(trial.config[ORIGIN].num_exploits) if ORIGIN in trial.config else 0
