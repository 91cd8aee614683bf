"""Model of the cost of trainings: seconds per unit of the resource, by configuration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sweeps.search.curve_model.fit import fit
from sweeps.search.curve_model.hyperparameters import Hyperparameters
from sweeps.search.curve_model.observations import Array, Observations, observe_one_rung
from sweeps.search.curve_model.posterior import Posterior

POWER = 0.5
"""Power of the cost by which an improvement is divided. With 0, costs would not matter; with 1 ("expected improvement
per second": Snoek et al., 2012, https://arxiv.org/abs/1206.2944) cheap configurations are preferred so much that the
best ones, which often are expensive, come too late (Lee et al., 2020, https://arxiv.org/abs/2003.10870)."""
FEWEST = 8
"""Minimum number of trials with known costs."""
MOST = 120
"""Maximum number of trials for the model, spread evenly over the search."""


class CostModel:
    """Gaussian process of the logarithm of the cost, relative to the mean."""

    def __init__(self, at: Hyperparameters, groups: Sequence[int], vectors: Array, seconds: Array):
        """
        Args:
            at: Result of ``fit_costs``.
            groups: Parameter of each column of the vectors, from 0.
            vectors: Configurations in the unit cube, of shape ``[trials, columns]``.
            seconds: Seconds of each configuration per unit of the resource, above 0.
        """
        self._mean, self._scale = _mean_and_scale(seconds)
        self._posterior = Posterior(at, groups, _observed(vectors, seconds))

    def of(self, vectors: Array) -> Array:
        """Return the relative costs of new configurations, by which their expected improvement is divided; 1 is the
        mean cost."""
        return np.asarray(np.exp(POWER * self._scale * self._posterior.predict(vectors, 0)[0]))

    def of_known(self, seconds: Array) -> Array:
        """Return the relative costs of trials whose seconds per unit of the resource are known."""
        return np.asarray(np.exp(POWER * (np.log(seconds) - self._mean)))


def fit_costs(groups: Sequence[int], vectors: Array, seconds: Array) -> Hyperparameters:
    """Find the hyperparameters with the largest posterior density.

    Args:
        groups: As for ``CostModel``.
        vectors: As for ``CostModel``.
        seconds: As for ``CostModel``.
    """
    return fit(_observed(vectors, seconds), groups, rungs=1)


def _observed(vectors: Array, seconds: Array) -> Observations:
    mean, scale = _mean_and_scale(seconds)
    rows = np.unique(np.linspace(0, len(vectors) - 1, min(MOST, len(vectors))).astype(np.intp))
    return observe_one_rung(vectors[rows], (np.log(seconds[rows]) - mean) / scale)


def _mean_and_scale(seconds: Array) -> tuple[float, float]:
    logarithms = np.log(seconds)
    return float(logarithms.mean()), float(logarithms.std()) + 1e-3
