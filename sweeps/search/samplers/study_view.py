"""Samplers that learn from other trials than those of the study that they sample for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Sequence
from copy import copy, deepcopy
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState


class ShownStudy(optuna.Study):
    """A study as a sampler shall see it: in all its own, but for the list of its trials.

    It shares storage and identity with the real one, since samplers write notes to the trial that they sample for.
    """

    def __init__(self, study: optuna.Study, trials: Sequence[FrozenTrial]):
        self.__dict__.update(study.__dict__)
        self._shown = trials

    def _get_trials(  # what ``get_trials`` and all of Optuna's samplers ask
        self, deepcopy: bool = True, states: Container[TrialState] | None = None, use_cache: bool = False
    ) -> list[FrozenTrial]:
        shown = [trial for trial in self._shown if states is None or trial.state in states]
        return _deepcopy(shown) if deepcopy else shown


class ShowingSampler(BaseSampler, ABC):
    """Wraps a sampler and shows it other trials."""

    def __init__(self, sampler: BaseSampler):
        """
        Args:
            sampler: Makes the suggestions.
        """
        self.sampler = sampler
        self._showing: tuple[int, optuna.Study] | None = None

    @abstractmethod
    def show(self, study: optuna.Study) -> Sequence[FrozenTrial]:
        """The trials that the wrapped sampler learns from, for the next suggestion; in order of their number."""

    def _shown(self, study: optuna.Study, trial: FrozenTrial) -> optuna.Study:
        """The same for all questions about one trial."""
        if self._showing is None or self._showing[0] != trial.number:
            self._showing = trial.number, ShownStudy(study, self.show(study))
        return self._showing[1]

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        self._showing = None
        return self.sampler.infer_relative_search_space(self._shown(study, trial), trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self.sampler.sample_relative(self._shown(study, trial), trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self.sampler.sample_independent(self._shown(study, trial), trial, param_name, param_distribution)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self.sampler.before_trial(study, trial)

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        self.sampler.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        self.sampler.reseed_rng()


def valued(trial: FrozenTrial, value: float) -> FrozenTrial:
    """The trial as if it had finished with this value."""
    shown = copy(trial)
    shown.state, shown.values = TrialState.COMPLETE, [value]
    return shown


_deepcopy = deepcopy  # ``deepcopy`` is the name of an argument of Optuna's
