"""Base classes of samplers that learn from trials other than those of their study."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from sweeps.compat.optuna import StudyView
from sweeps.search.schedulers.decisions import is_running, judged_steps


class WrappedSampler(BaseSampler):
    """Delegates everything to another sampler."""

    def __init__(self, sampler: BaseSampler):
        self.sampler = sampler

    def _view_of(self, study: optuna.Study, trial: FrozenTrial) -> optuna.Study:
        """Return the study that the wrapped sampler learns from."""
        return study

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self.sampler.infer_relative_search_space(self._view_of(study, trial), trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self.sampler.sample_relative(self._view_of(study, trial), trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self.sampler.sample_independent(self._view_of(study, trial), trial, param_name, param_distribution)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self.sampler.before_trial(study, trial)

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        self.sampler.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        self.sampler.reseed_rng()


class StudyViewSampler(WrappedSampler, ABC):
    """Wraps a sampler and replaces the trials that it learns from."""

    _view: tuple[int, optuna.Study] | None = None

    @abstractmethod
    def trials(self, study: optuna.Study) -> Sequence[FrozenTrial]:
        """Return the trials that the wrapped sampler learns from for the next suggestion, in the order of their
        numbers."""

    def _view_of(self, study: optuna.Study, trial: FrozenTrial) -> optuna.Study:
        """Return a study with these trials; it is the same for all parameters of one trial."""
        if self._view is None or self._view[0] != trial.number:
            self._view = trial.number, StudyView(study, self.trials(study))
        return self._view[1]

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        self._view = None
        return super().infer_relative_search_space(study, trial)


def completed(trial: FrozenTrial, value: float) -> FrozenTrial:
    """Return a copy of a trial as if it had completed with this value."""
    changed = copy(trial)
    changed.state, changed.values = TrialState.COMPLETE, [value]
    return changed


def told_steps(trial: FrozenTrial, reported: Iterable[int]) -> set[int]:
    """Return the steps at which a trial ended, waits or was judged, given those that it has reported."""
    ended = () if is_running(trial) else (max(reported, default=None),)
    return {step for step in (*ended, *judged_steps(trial)) if step is not None}
