"""Our Optuna searcher for Tune: what it tells the study is what happened.

Ray's own bridge tells a trial that a scheduler stopped as complete, and leaves failed ones running forever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage
from optuna.trial import TrialState
from ray.tune.search import Searcher

from sweeps.config.space import Distribution
from sweeps.constants import COMPLETED, STEP, STOPPED
from sweeps.errors import ConfigError
from sweeps.search.advice import Advisor
from sweeps.space import Space, encode

MAX_INVALID_SUGGESTIONS = 100
MAX_REFUSALS = 10
REASON = "sweeps:reason"
"""Attribute of an Optuna trial: why it failed."""


class OptunaSearcher(Searcher):
    """Suggests points of a space with an Optuna sampler, for any ``tune.Tuner``.

    Example:
        >>> searcher = OptunaSearcher({"lr": FloatDistribution(type="float", low=1e-5, high=1e-2, log=True)},
        ...                           metric="loss", mode="min")
        >>> tune.Tuner(trainable, tune_config=tune.TuneConfig(search_alg=searcher, num_samples=20))
    """

    def __init__(  # noqa: PLR0913 - each a choice of its own, with a default
        self,
        space: Mapping[str, Distribution] | Space,
        *,
        metric: str,
        mode: Literal["min", "max"],
        sampler: BaseSampler | None = None,
        storage: BaseStorage | str | None = None,
        study_name: str | None = None,
        points: Sequence[Mapping[str, Any]] = (),
        only_points: bool = False,
        lookup: Callable[[str], Any] = lambda path: None,
        validate: Callable[[Mapping[str, Any]], object] | None = None,
        advisors: Sequence[Advisor] = (),
    ):
        """
        Args:
            space: Distributions by name (dotted path).
            metric: Key of a result.
            mode: Whether a smaller or a larger value is better.
            sampler: Default: Optuna's.
            storage: Where the study is kept; default: in memory.
            study_name: Name of the study in the storage.
            points: Points to suggest first; what one leaves out is sampled.
            only_points: Suggest nothing after them (a grid).
            lookup: Gives the value of what conditions name but the space does not search.
            validate: Raises ``ConfigError`` for a point that cannot be run; it is told as failed, and the next asked.
            advisors: May set values of the next point, and refuse points; the first that sets a path has it.
        """
        super().__init__(metric=metric, mode=mode)
        self._name = metric
        self.space = space if isinstance(space, Space) else Space(space)
        self.study = optuna.create_study(
            storage=storage,
            sampler=sampler,
            study_name=study_name,
            direction="minimize" if mode == "min" else "maximize",
            load_if_exists=True,
        )
        self._lookup = lookup
        self._validate = validate
        self._advisors = advisors
        self._only_points = only_points
        self._trials: dict[str, optuna.Trial] = {}
        self._values: dict[str, dict[int, float]] = {}
        for point in points:
            self.study.enqueue_trial({path: encode(value) for path, value in point.items()})

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """The next point, by path; parameters whose conditions do not hold are absent."""
        reason: str | None = None
        for attempt in range(MAX_INVALID_SUGGESTIONS):
            if not self._waiting():
                if self._only_points:
                    return cast("dict[str, Any]", self.FINISHED)  # a string, by Tune's own convention
                self._take_advice()
            trial = self.study.ask()
            point = self.space.sample(trial, self._lookup)
            reason = self._invalid(point) or (self._refused(point) if attempt < MAX_REFUSALS else None)
            if reason is not None:
                trial.set_user_attr(REASON, reason)
                self.study.tell(trial, state=TrialState.FAIL)
                continue
            self._trials[trial_id] = trial
            self._values[trial_id] = {}
            return point
        raise ConfigError(f"the last {MAX_INVALID_SUGGESTIONS} suggestions made no valid config: {reason}")

    def _take_advice(self) -> None:
        values: dict[str, Any] = {}
        for advisor in self._advisors:
            values = {**advisor.fix(self.study, len(self.study.get_trials(deepcopy=False))), **values}
        if values:
            self.study.enqueue_trial({path: encode(value) for path, value in values.items()})

    def _invalid(self, point: Mapping[str, Any]) -> str | None:
        try:
            if self._validate is not None:
                self._validate(point)
        except ConfigError as error:
            return str(error)
        return None

    def _refused(self, point: Mapping[str, Any]) -> str | None:
        reasons = (advisor.refuse(self.study, point) for advisor in self._advisors)
        return next((reason for reason in reasons if reason is not None), None)

    def _waiting(self) -> bool:
        return bool(self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,)))

    def number(self, trial_id: str) -> int:
        """The Optuna trial's number, in the order of suggestion from 0."""
        return self._trials[trial_id].number

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        value = result.get(self._name)
        if trial_id not in self._trials or value is None or not math.isfinite(value):
            return
        step = int(result.get(STEP, result["training_iteration"]))
        if step not in self._values[trial_id]:  # a retried trial reports some steps again
            self._values[trial_id][step] = float(value)
            self._trials[trial_id].report(float(value), step)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        trial = self._trials.pop(trial_id, None)
        if trial is None:
            return
        if result and not error:  # Tune gives the last result only here
            self._trials[trial_id] = trial
            self.on_trial_result(trial_id, result)
            del self._trials[trial_id]
        values = list(self._values.pop(trial_id).values())
        last = (result or {}).get(self._name)
        if error or not values or last is None or not math.isfinite(last):
            trial.set_user_attr(REASON, "error" if error else f"{self._name}={last}")
            self.study.tell(trial, state=TrialState.FAIL)
        elif result is not None and result.get(STOPPED):
            trial.set_user_attr(REASON, "stopped by a person")
            self.study.tell(trial, state=TrialState.FAIL)
        elif result is not None and result.get(COMPLETED, True):
            self.study.tell(trial, min(values) if self._mode == "min" else max(values))
        else:
            self.study.tell(trial, state=TrialState.PRUNED)

    def save(self, checkpoint_path: str) -> None:
        """Nothing to do: the study is in its storage."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to do: the study is in its storage."""
