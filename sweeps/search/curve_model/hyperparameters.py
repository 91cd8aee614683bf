"""Hyperparameters of the model of learning curves, and their prior distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sweeps.search.curve_model.observations import Array

CONSTANT = 1.0
"""Prior variance of the constant that each rung adds."""


@dataclass(frozen=True)
class Hyperparameters:
    """Hyperparameters on the model's scale, where the values have variance 1."""

    log_lengths: Array
    """Logarithm of the length scale of each parameter."""
    log_variances: Array
    """Logarithm of the variance that each rung adds."""
    slopes: Array
    """Factor from each rung's function to the next rung's."""
    log_noise: Array
    """Logarithm of the variance of a value around its trial's function, at each rung."""
    logit_own: float
    """Logit of the part of the added variances that is specific to a trial instead of its configuration."""

    @property
    def rungs(self) -> int:
        return len(self.log_variances)

    @cached_property
    def own(self) -> float:
        """Part of the added variances that is specific to a trial instead of its configuration."""
        return 1 / (1 + math.exp(-self.logit_own))

    @cached_property
    def factors(self) -> Array:
        """Weight of each rung's added function in the sum that models each rung, of shape ``[adding, rungs]``."""
        factors = np.eye(self.rungs)
        for rung in range(1, self.rungs):
            factors[:rung, rung] = factors[:rung, rung - 1] * self.slopes[rung - 1]
        return factors

    def factors_by_slope(self, index: int) -> Array:
        """Return the derivative of ``factors`` by a slope."""
        derivative = np.zeros((self.rungs, self.rungs))
        for adding in range(index + 1):
            for rung in range(index + 1, self.rungs):
                others = [self.slopes[each] for each in range(adding, rung) if each != index]
                derivative[adding, rung] = math.prod(others)
        return derivative

    def vector(self) -> Array:
        """Return all hyperparameters as one vector."""
        return np.concatenate([self.log_lengths, self.log_variances, self.slopes, self.log_noise, [self.logit_own]])

    @classmethod
    def of(cls, vector: Array, parameters: int, rungs: int) -> Hyperparameters:
        """Create hyperparameters from a vector that ``vector`` returned."""
        ends = np.cumsum([parameters, rungs, rungs - 1, rungs])
        lengths, variances, slopes, noise, own = np.split(np.asarray(vector, dtype=float), ends)
        return cls(lengths, variances, slopes, noise, float(own[0]))


@dataclass(frozen=True)
class Prior:
    """Independent normal distributions of the hyperparameters.

    Length scales grow with the number of parameters, as distances do (Hvarfner et al., 2024,
    https://arxiv.org/abs/2402.02229). A later rung equals the one before until data show a difference; its addition and
    the noise have wide distributions.
    """

    mean: Array
    deviation: Array

    @classmethod
    def of(cls, parameters: int, rungs: int) -> Prior:
        """Return the prior for a given number of parameters and rungs."""
        later = rungs - 1
        mean = Hyperparameters(
            np.full(parameters, math.log(0.5) + 0.5 * math.log(max(parameters, 1) / 3)),
            np.array([0.0] + [math.log(0.1)] * later),
            np.ones(later),
            np.full(rungs, math.log(0.03)),
            -4.0,
        )
        deviation = Hyperparameters(
            np.full(parameters, 0.8), np.array([1.0] + [1.5] * later), np.full(later, 0.4), np.full(rungs, 2.0), 0.7
        )
        return cls(mean.vector(), deviation.vector())
