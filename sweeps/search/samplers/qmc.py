"""Quasi-Monte Carlo sampler for spaces with conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial

from sweeps.space.distributions import suggest
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
    recorder = _DistributionRecorder()
    for path, each in space.distributions.items():
        suggest(recorder, path, each)
    return {path: distribution for path, distribution in recorder.distributions.items() if not distribution.single()}


class _DistributionRecorder:
    """Records the distributions from which values are suggested."""

    def __init__(self) -> None:
        self.distributions: dict[str, BaseDistribution] = {}

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        self.distributions[name] = FloatDistribution(low, high, log=log, step=step)
        return low

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        self.distributions[name] = IntDistribution(low, high, log=log, step=step)
        return low

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        self.distributions[name] = CategoricalDistribution(choices)
        return choices[0]
