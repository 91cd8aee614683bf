"""Quasi-Monte Carlo sampler for spaces with conditions."""

from __future__ import annotations

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FixedTrial, FrozenTrial

from sweeps.space.distributions import boundary_values, suggest
from sweeps.space.space import Space


class SpaceFillingSampler(optuna.samplers.QMCSampler):
    """Quasi-Monte Carlo sampler whose sequence covers all parameters of the space.

    Optuna's sampler covers the parameters of the first trial, and draws conditional parameters that this trial lacks at
    random.
    """

    def __init__(self, sequence: str, space: Space, *, scramble: int, seed: int):
        """
        Args:
            sequence: ``sobol`` or ``halton``.
            space: Each of its parameters is a dimension of the sequence, even if it is conditional.
            scramble: Seed of the sequence; the same for all trials.
            seed: Seed of parameters that are not in the sequence.
        """
        super().__init__(
            qmc_type=sequence,
            scramble=True,
            seed=scramble,
            independent_sampler=optuna.samplers.RandomSampler(seed=seed),
            warn_independent_sampling=False,
        )
        self._space = unconditional(space)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._space


def unconditional(space: Space) -> dict[str, BaseDistribution]:
    """Return Optuna's distributions of all parameters with more than one value, without conditions."""
    first = {path: boundary_values(each)[0] for path, each in space.distributions.items()}
    trial = FixedTrial(space.encode(first))
    for path, each in space.distributions.items():
        suggest(trial, path, each)
    return {path: distribution for path, distribution in trial.distributions.items() if not distribution.single()}
