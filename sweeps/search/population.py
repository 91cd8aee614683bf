"""Population based training, by Tune."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import PopulationBasedTraining, TrialScheduler

from sweeps.config.search import Mode
from sweeps.constants import ORIGIN, PARAMETERS, STEP, TRIAL
from sweeps.runtime.lineage import Origin, is_pinned, release, take_over
from sweeps.search.mutation import Mutation
from sweeps.search.places import Pausing


@dataclass(frozen=True)
class Exploit:
    """A trial goes on from another one's state, with changed values."""

    trial: str
    origin: Origin
    parameters: Mapping[str, Any]
    """Its values from now on, by path."""
    changed: Mapping[str, Any]
    """Those among them that differ from what it had."""


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
        population: int,
        trials: Path,
        exploited: Callable[[Exploit], None],
        seed: int = 0,
    ):
        """
        Args:
            resource: Key of the result that ``interval`` is counted in.
            interval: How often a trial may be changed.
            quantile: Part of the population that is replaced, and that is copied.
            mutation: Makes the new values.
            population: Trials that there will be.
            trials: Folder of all trials' checkpoints.
            exploited: Hears of every exploit.
            seed: Of the choice among the best, with who chooses and how often it has.
        """
        super().__init__(
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

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        assert metric is not None
        self._objective = metric, "max" if mode == "max" else "min"
        return super().set_search_properties(metric, mode, **spec)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        if trial not in self._trial_state:
            super().on_trial_add(_WithoutSearcher(), trial)  # type: ignore[arg-type]

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        state = self._trial_state[trial]
        before = state.last_train_time
        decision = super().on_trial_result(tune_controller, trial, result)
        compared = state.last_train_time == result.get(self._time_attr) != before
        incomplete = len(self._trial_state) < self._population
        return TrialScheduler.PAUSE if decision == TrialScheduler.CONTINUE and compared and incomplete else decision

    def _save_trial_state(self, state: Any, time: int, result: dict[str, Any], trial: Trial) -> float:
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
        return f"{trial.config[TRIAL]}/{_next_lineage(trial)}"

    def _get_new_config(self, trial: Trial, trial_to_clone: Trial) -> tuple[dict[str, Any], dict[str, Any]]:
        origin = self._origin(trial, trial_to_clone)
        parameters = self.mutated(trial, trial_to_clone)
        return {TRIAL: trial.config[TRIAL], PARAMETERS: parameters, ORIGIN: origin}, {}

    def _origin(self, trial: Trial, donor: Trial) -> Origin:
        saved: dict[str, Any] | None = self._trial_state[donor].last_result
        assert saved is not None  # Tune does not copy what it has not saved
        return Origin(donor.config[TRIAL], saved[STEP], _next_lineage(trial))

    def mutated(self, trial: Trial, donor: Trial) -> dict[str, Any]:
        """New values for a trial that goes on from a donor's state."""
        return self._mutation.near(donor.config[PARAMETERS], self.occasion(trial))

    def _exploit(self, tune_controller: Any, trial: Trial, trial_to_clone: Trial) -> None:
        if not is_pinned(self._trials, self._origin(trial, trial_to_clone)):
            return
        before = trial.config[PARAMETERS]
        super()._exploit(tune_controller, trial, trial_to_clone)
        name, origin, parameters = trial.config[TRIAL], trial.config[ORIGIN], trial.config[PARAMETERS]
        # The trial's own workers wait since their last report, so that nothing moves in its folder; and the donor pins
        # its next checkpoint only when it is told to from here.
        take_over(self._trials, name, origin, *self._objective)
        changed = {path: value for path, value in parameters.items() if before.get(path) != value}
        self._exploited(Exploit(name, origin, parameters, changed))

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        release(self._trials, trial.config[TRIAL])

    def ready(self, tune_controller: Any, paused: list[Trial], *, complete: bool) -> list[Trial]:
        """All, those that have trained least first."""
        return sorted(paused, key=lambda trial: self._trial_state[trial].last_train_time)


def _next_lineage(trial: Trial) -> int:
    return 1 + (trial.config[ORIGIN].lineage if ORIGIN in trial.config else 0)


class _WithoutSearcher:
    """What Tune's own class is shown when a trial is added: it refuses searchers, since it would rather fill in values
    itself, of which there is no need here."""

    search_alg = None
