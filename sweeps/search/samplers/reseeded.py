"""Sampler that makes the same suggestions for the same seed and study after a restart of the driver."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from sweeps.search.samplers.study_view import WrappedSampler


class ReseededSampler(WrappedSampler):
    """Creates a new sampler for each trial, seeded by the search's seed and the trial's number.

    The state of a random generator, and anything else that a sampler keeps between trials, would be lost with the
    driver. Optuna's samplers keep in memory only what they can compute from the study.
    """

    def __init__(self, make: Callable[[int], BaseSampler], seed: int):
        """
        Args:
            make: Makes a sampler from its seed, from 0 to 2^32 - 1.
            seed: Seed of the search; zero or positive.
        """
        super().__init__(make(seed))
        self._make, self._seed = make, seed
        self._inferred: int | None = None
        """Number of the trial whose search space was inferred last."""

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self.sampler = self._make(int(np.random.SeedSequence((self._seed, trial.number)).generate_state(1)[0]))
        super().before_trial(study, trial)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        self._inferred = trial.number
        return super().infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if self._inferred != trial.number:  # TPE finds there which parameters it models together
            self.infer_relative_search_space(study, trial)
        return super().sample_relative(study, trial, search_space)

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        try:
            with warnings.catch_warnings():
                # The docs of search.limits say which samplers learn from constraints.
                warnings.filterwarnings("ignore", message="Constraints have been set")
                super().after_trial(study, trial, state, values)
        except RuntimeError as error:
            # A sampler that has tried all points stops Optuna's own loop, which does not run here. The searcher finds
            # out by itself that no point is left.
            if "Study.stop" not in str(error):
                raise

    def reseed_rng(self) -> None:
        """Do nothing: each trial has its own seed."""
