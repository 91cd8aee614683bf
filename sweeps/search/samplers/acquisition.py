"""Score of candidates: the expected improvement at the last rung, of one objective or a weighted sum of several,
relative to the cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sweeps.search.curve_model.cost import CostModel
from sweeps.search.curve_model.observations import Array, Indices
from sweeps.search.curve_model.posterior import Posterior, expected_improvement
from sweeps.search.weighted_objective import weighted

DRAWS = 128
"""Number of joint draws of the objectives over which the expected improvement of their weighted sum is averaged."""
LEAST = 1e-12
"""Expected improvement that is too small to compare."""


class Acquisition:
    """Scores points by the models of all objectives.

    With several objectives one randomly weighted objective is scored (ParEGO: Knowles, 2006,
    https://doi.org/10.1109/TEVC.2005.851274). Unlike there, each objective has a model of its own, and the improvement
    is the mean over draws of their predictions (qParEGO: Daulton et al., 2020, https://arxiv.org/abs/2006.05078).
    """

    def __init__(self, posteriors: Sequence[Posterior], end: int, known: Array, seed: int, costs: CostModel | None):
        """
        Args:
            posteriors: The model of each objective.
            end: Index of the last rung.
            known: Points that were tried.
            seed: Seed of the weights and draws.
            costs: The model of what trainings cost; None if all cost the same.
        """
        self._posteriors, self._end, self._costs = posteriors, end, costs
        means = self._predict(known)[0]
        self._ideal = means.min(axis=1)
        generator = np.random.default_rng(seed)
        self._weights = generator.dirichlet(np.ones(len(posteriors)))
        half = generator.standard_normal((len(posteriors), DRAWS // 2, 1))
        self._draws = np.concatenate([half, -half], axis=1)
        """Standard normal, of shape ``[objectives, draws, 1]``."""
        self._of_known = self._weighted(means)
        self._best = float(self._of_known.min())

    def best_known(self, number: int) -> Indices:
        """Return the rows of the ``number`` best points that were tried, best first."""
        return np.asarray(np.argsort(self._of_known[:number]))

    def of(self, points: Array) -> Array:
        """Return the logarithm of the expected improvement of points, relative to their cost."""
        means, deviations = self._predict(points)
        middle = self._weighted(means)
        if len(means) == 1:
            improvement, doubt = expected_improvement(means[0], deviations[0], self._best), deviations[0]
        else:
            drawn = self._weighted(means[:, None] + deviations[:, None] * self._draws)
            improvement = np.maximum(self._best - drawn, 0.0).mean(axis=0)
            doubt = drawn.std(axis=0) + LEAST
        # Far from the best, the expected improvement underflows, but some points are still nearer.
        nearer = np.log(LEAST) - np.maximum(middle - self._best, 0.0) / doubt
        promise = np.where(improvement > LEAST, np.log(np.maximum(improvement, LEAST)), nearer)
        return promise if self._costs is None else promise - np.log(self._costs.of(points))

    def _predict(self, points: Array) -> tuple[Array, Array]:
        """Return the means and standard deviations at the last rung, of shape ``[objectives, points]``."""
        means, deviations = zip(*(each.predict(points, self._end) for each in self._posteriors), strict=True)
        return np.array(means), np.array(deviations)

    def _weighted(self, values: Array) -> Array:
        """Return the weighted objective of values of shape ``[objectives, ...]``."""
        return values[0] if len(values) == 1 else weighted(values, self._weights, self._ideal)
