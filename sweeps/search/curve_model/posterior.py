"""Predictions of the model of learning curves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr

from sweeps.search.curve_model.fit import ROOT_5, cholesky_factor, inverse_of
from sweeps.search.curve_model.hyperparameters import CONSTANT, Hyperparameters
from sweeps.search.curve_model.observations import Array, Indices, Observations


class Posterior:
    """The model's functions conditioned on observations."""

    def __init__(self, at: Hyperparameters, groups: Sequence[int], data: Observations):
        """
        Args:
            at: The fitted hyperparameters.
            groups: Parameter of each column of the vectors, from 0.
            data: The observations.
        """
        self._at, self._data = at, data
        self._variances = np.exp(at.log_variances)
        # A rung's constant moves all predictions there alike. Until a value determines it, its variance would make bad
        # trials look as promising as good ones.
        self._constants = CONSTANT * (np.arange(at.rungs) <= data.rungs.max(initial=-1))
        self._inverse_lengths = np.exp(-at.log_lengths)[np.asarray(groups, dtype=np.intp)]
        self._vectors = data.vectors * self._inverse_lengths
        self._rows = at.factors[:, data.rungs]
        same = data.trials[:, None] == data.trials[None, :]
        kernel = (1 - at.own) * self._matern(self._vectors)[data.trials] + at.own * same
        covariance = self._rows.T @ (self._variances[:, None] * self._rows) * kernel
        covariance += CONSTANT * self._rows.T @ self._rows
        covariance[np.diag_indices(len(data))] += np.exp(at.log_noise)[data.rungs]
        self._inverse_factor = inverse_of(cholesky_factor(covariance))
        self._whitened = self._inverse_factor @ data.values

    def _matern(self, scaled: Array) -> Array:
        """Return the Matérn correlation of configurations with the configuration of each observation."""
        squared = (scaled**2).sum(axis=1)[:, None] + (self._vectors**2).sum(axis=1) - 2 * scaled @ self._vectors.T
        root = ROOT_5 * np.sqrt(np.maximum(squared, 0.0))
        correlation = (1 + root + root * root / 3) * np.exp(-root)
        return np.asarray(correlation[:, self._data.trials])

    def predict(self, vectors: Array, rung: int) -> tuple[Array, Array]:
        """Return the means and standard deviations of the functions of new configurations at a rung.

        Args:
            vectors: The configurations.
            rung: Index of the rung.
        """
        solved = self._solved_with(self._kernel(vectors), rung)
        return self._mean(solved), self._deviation(solved, rung, 1 - self._at.own)

    def look_ahead(self, vectors: Array, rung: int) -> tuple[Array, Array, Array]:
        """Predict new trials at a rung, and how much their values at the first rung will change these predictions.

        Args:
            vectors: Configurations of the trials.
            rung: Index of the rung.

        Returns:
            Means and standard deviations of the trials' functions at the rung, and the standard deviations of the means
            that will be predicted once the trials' values at the first rung are known.
        """
        kernel = self._kernel(vectors)
        at_rung = self._solved_with(kernel, rung)
        told = self._told(self._solved_with(kernel, 0), 0, at_rung, rung)
        return self._mean(at_rung), self._deviation(at_rung, rung, 1.0), told

    def look_ahead_observed(self, following: Indices, rung: int) -> tuple[Array, Array, Array]:
        """Predict the observed trials at a rung, and how much their next values will change these predictions.

        Args:
            following: Index of the next rung of each trial.
            rung: Index of the rung.

        Returns:
            Means and standard deviations of the trials' functions at the rung, and the standard deviations of the means
            that will be predicted once the trials' values at their next rungs are known.
        """
        kernel, told = self._kernel_of_observed(), np.zeros(len(following))
        at_rung = self._solved_with(kernel, rung)
        for each in np.unique(following):
            rows = following == each
            told[rows] = self._told(self._solved_with(kernel[rows], int(each)), int(each), at_rung[rows], rung)
        return self._mean(at_rung), self._deviation(at_rung, rung, 1.0), told

    def _told(self, at_next: Array, following: int, at_rung: Array, rung: int) -> Array:
        """Return the standard deviations of the change of predicted means at a rung when values at an earlier rung
        become known."""
        factors = self._at.factors
        covariance = ((self._variances + self._constants) * factors[:, following] * factors[:, rung]).sum()
        covariance = covariance - (at_next * at_rung).sum(axis=1)
        of_next = self._deviation(at_next, following, 1.0) ** 2 + np.exp(self._at.log_noise[following])
        return np.asarray(covariance / np.sqrt(of_next))

    def _kernel(self, vectors: Array) -> Array:
        """Return the covariance with each observation that depends only on the configuration, not on the trial."""
        return (1 - self._at.own) * self._matern(vectors * self._inverse_lengths)

    def _kernel_of_observed(self) -> Array:
        """Return the covariance of the observed trials with each observation."""
        is_own = np.arange(len(self._data.vectors))[:, None] == self._data.trials
        return np.asarray(self._kernel(self._data.vectors) + self._at.own * is_own)

    def _solved_with(self, kernel: Array, rung: int) -> Array:
        """Return the covariance of functions at a rung with the observations, multiplied by the inverse Cholesky
        factor."""
        factors = self._at.factors[:, rung]
        covariance = kernel * ((self._variances * factors) @ self._rows) + CONSTANT * factors @ self._rows
        return np.asarray(covariance @ self._inverse_factor.T)

    def _mean(self, solved: Array) -> Array:
        return np.asarray(solved @ self._whitened)

    def _deviation(self, solved: Array, rung: int, share: float) -> Array:
        """Return the standard deviations of functions with this share of the added variances."""
        factors = self._at.factors[:, rung]
        prior = ((share * self._variances + self._constants) * factors**2).sum()
        return np.asarray(np.sqrt(np.maximum(prior - (solved**2).sum(axis=1), 1e-12)))


def expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Return the expected amount by which normally distributed values are below ``best``; 0 for values above it."""
    score = (best - mean) / deviation
    return np.asarray(deviation * (score * ndtr(score) + np.exp(-score * score / 2) / np.sqrt(2 * np.pi)))
