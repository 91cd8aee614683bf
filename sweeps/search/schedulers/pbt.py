"""Population based training, by Tune."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray.tune import Checkpoint
from ray.tune.experiment import Trial
from ray.tune.schedulers import PopulationBasedTraining, TrialScheduler

from sweeps.config.search import Mode
from sweeps.constants import ORIGIN, PARAMETERS, STEP, TRIAL
from sweeps.runtime.checkpoint_layout import Origin, is_pinned, pin, release, take_over
from sweeps.search.schedulers.concurrency import Pausing
from sweeps.search.schedulers.decisions import History, encoded
from sweeps.search.schedulers.mutation import Mutation


@dataclass(frozen=True)
class Exploit:
    """A trial goes on from another one's state, with changed values."""

    trial: str
    origin: Origin
    parameters: Mapping[str, Any]
    """Its values from now on, by path."""
    changed: Mapping[str, Any]
    """Those among them that differ from what it had."""
    decision: Mapping[str, Any] = field(default_factory=dict)
    """The scheduler's, to be kept together with the rest: after a restart it has happened as a whole, or not at all."""


class PopulationTraining(Pausing, PopulationBasedTraining):
    """Every ``interval`` a trial among the worst goes on from the state of one of the best, with values near that
    one's (Jaderberg et al., 2017, https://arxiv.org/abs/1711.09846). Trials for which there is no place take turns.

    Tune's, with these differences: it works with a searcher, which gives the first values; values stay within the
    space; a trial that reports NaN counts as the worst, and so is rescued; one that failed and is started again keeps
    its place.
    """

    resumes_first = False  # the population is to be complete, before trials are compared

    def __init__(
        self,
        resource: str,
        interval: float,
        quantile: float,
        mutation: Mutation,
        *,
        population: Callable[[], int],
        trials: Path,
        exploited: Callable[[Exploit], None],
        seed: int = 0,
        history: History | None = None,
    ):
        """
        Args:
            resource: Key of the result that ``interval`` is counted in.
            interval: How often a trial may be changed.
            quantile: Part of the population that is replaced, and that is copied.
            mutation: Makes the new values.
            population: Number of trials that there will be, which may be raised.
            trials: Folder of all trials' checkpoints.
            exploited: Hears of every exploit.
            seed: Of the choice among the best, with who chooses and how often it has.
            history: The decisions of earlier sessions, and where this one's are kept.
        """
        super().__init__(
            history=history,
            time_attr=resource,
            perturbation_interval=interval,
            quantile_fraction=quantile,
            custom_explore_fn=lambda config: config,  # Tune wants something; what changes is decided in mutated()
            log_config=False,
            require_attrs=False,
        )
        self._mutation = mutation
        self._population = population
        self._trials, self._exploited, self._seed = trials, exploited, seed
        self._objective: tuple[str, Mode] = "", "min"
        self._compared = False
        """The report at hand was compared with the others', and the trial has not taken over another one's state."""
        self._kept: dict[str, Mapping[str, Any]] = {}
        """The last comparison of each trial of an earlier session that was not taken up yet."""
        for name, event in self._history.events:
            assert name is not None
            self._learn(name, event)

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        assert metric is not None
        self._objective = metric, "max" if mode == "max" else "min"
        return super().set_search_properties(metric, mode, **spec)

    def _learn(self, trial: str, event: Mapping[str, Any]) -> None:
        """A decision of an earlier session."""
        if event["event"] == "compared":
            self._kept[trial] = event
            if event["paused"]:
                self._paused.add(trial)
                return
        self._paused.discard(trial)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        if trial in self._trial_state:
            return
        super().on_trial_add(_WithoutSearcher(), trial)  # type: ignore[arg-type]
        if self.take_up(tune_controller, trial) and (event := self._kept.pop(trial.config[TRIAL], None)) is not None:
            state: Any = self._trial_state[trial]
            state.last_score, state.last_result = float(event["score"]), {STEP: event["step"]}
            state.last_train_time, state.last_perturbation_time = event["trained"], event["perturbed"]
            state.last_checkpoint = self._pinned_again(trial, event["step"]) if event["saved"] else None

    def _pinned_again(self, trial: Trial, step: int) -> Checkpoint:
        """Checkpoint that Tune had saved of a trial; its driver may have died before the checkpoint was pinned."""
        name, lineage = trial.config[TRIAL], _lineage(trial)
        if not is_pinned(self._trials, Origin(name, step, lineage)):
            pin(self._trials, name, lineage, step)
        return Checkpoint(str(self._trials / name))

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        self._history.hear(trial, result)
        if self._history.goes_on_later():  # it is compared in the next session, with all others
            return TrialScheduler.CONTINUE
        self._compared = False
        state = self._trial_state[trial]
        before = state.last_train_time
        decision = super().on_trial_result(tune_controller, trial, result)
        compared = state.last_train_time == result.get(self._time_attr) != before
        if decision == TrialScheduler.CONTINUE and compared and self._is_incomplete():
            decision = TrialScheduler.PAUSE
        if self._compared:
            self._history.add(trial.config[TRIAL], self._decision(trial, paused=decision == TrialScheduler.PAUSE))
        if decision in (TrialScheduler.PAUSE, TrialScheduler.NOOP):
            self._paused.add(trial.config[TRIAL])
        return decision

    def _is_incomplete(self) -> bool:
        """Whether trials of the population have not begun yet."""
        begun = {trial.config[TRIAL] for trial in self._trial_state} | self._history.trials
        return len(begun) < self._population()

    def _decision(self, trial: Trial, *, paused: bool) -> dict[str, Any]:
        """All that the scheduler knows of a trial."""
        state: Any = self._trial_state[trial]
        return {
            "event": "compared",
            "score": encoded(state.last_score),
            "step": state.last_result[STEP],
            "trained": state.last_train_time,
            "perturbed": state.last_perturbation_time,
            "saved": state.last_checkpoint is not None,
            "paused": paused,
        }

    def _save_trial_state(self, state: Any, time: int, result: dict[str, Any], trial: Trial) -> float:
        self._compared = True
        metric, mode = self._objective
        if math.isnan(result[metric]):
            result = {**result, metric: math.inf if mode == "min" else -math.inf}
        return float(super()._save_trial_state(state, time, result, trial))

    def _checkpoint_or_exploit(
        self, trial: Trial, tune_controller: Any, upper_quantile: list[Trial], lower_quantile: list[Trial]
    ) -> None:
        """One that only rose among the best since it was last compared has saved nothing, and is not chosen. Who is, is
        drawn here, since Tune draws with everybody's generator."""
        saved = [
            each for each in upper_quantile if each is trial or self._trial_state[each].last_checkpoint is not None
        ]
        if trial in lower_quantile and saved:
            chance = random.Random(f"{self._seed}/{self.occasion(trial)}/donor")
            saved = [chance.choice(sorted(saved, key=lambda each: str(each.config[TRIAL])))]
        super()._checkpoint_or_exploit(trial, tune_controller, saved, lower_quantile if saved else [])

    def occasion(self, trial: Trial) -> str:
        """When a trial goes on from another one's state: no other time is called so, also after a restart."""
        return f"{trial.config[TRIAL]}/{1 + _lineage(trial)}"

    def _get_new_config(self, trial: Trial, trial_to_clone: Trial) -> tuple[dict[str, Any], dict[str, Any]]:
        origin = self._origin(trial, trial_to_clone)
        parameters = self.mutated(trial, trial_to_clone)
        return {TRIAL: trial.config[TRIAL], PARAMETERS: parameters, ORIGIN: origin}, {}

    def _origin(self, trial: Trial, donor: Trial) -> Origin:
        saved: dict[str, Any] | None = self._trial_state[donor].last_result
        assert saved is not None  # Tune does not copy what it has not saved
        return Origin(donor.config[TRIAL], saved[STEP], 1 + _lineage(trial))

    def mutated(self, trial: Trial, donor: Trial) -> dict[str, Any]:
        """New values for a trial that goes on from a donor's state."""
        return self._mutation.near(donor.config[PARAMETERS], self.occasion(trial))

    def _exploit(self, tune_controller: Any, trial: Trial, trial_to_clone: Trial) -> None:
        if not is_pinned(self._trials, self._origin(trial, trial_to_clone)):
            return
        before = trial.config[PARAMETERS]
        super()._exploit(tune_controller, trial, trial_to_clone)
        # The donor's checkpoint in Tune says nothing of this trial, whose folder says from where it goes on.
        checkpoints: Any = trial.run_metadata.checkpoint_manager
        checkpoints._latest_checkpoint_result = None  # noqa: SLF001
        name, origin, parameters = trial.config[TRIAL], trial.config[ORIGIN], trial.config[PARAMETERS]
        # The trial's own workers wait since their last report, so that nothing moves in its folder; and the donor pins
        # its next checkpoint only when it is told to from here.
        take_over(self._trials, name, origin, *self._objective)
        changed = {path: value for path, value in parameters.items() if before.get(path) != value}
        decision = self._history.ordered(self._decision(trial, paused=True))
        self._exploited(Exploit(name, origin, parameters, changed, decision))
        self._compared = False

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        if not self._history.goes_on_later(result):
            release(self._trials, trial.config[TRIAL])

    def ready(self, tune_controller: Any, paused: list[Trial], *, complete: bool) -> list[Trial]:
        """All, those that have trained least first."""
        return sorted(paused, key=lambda trial: (self._trial_state[trial].last_train_time, trial.config[TRIAL]))


def _lineage(trial: Trial) -> int:
    """How often a trial has taken over another one's state."""
    return int(trial.config[ORIGIN].lineage) if ORIGIN in trial.config else 0


class _WithoutSearcher:
    """What Tune's own class is shown when a trial is added: it refuses searchers, since it would rather fill in values
    itself, of which there is no need here."""

    search_alg = None
