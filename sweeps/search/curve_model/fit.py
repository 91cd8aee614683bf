"""Hyperparameters of the model of learning curves, fitted to observations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import cholesky
from scipy.linalg.lapack import dtrtri
from scipy.optimize import minimize

from sweeps.search.curve_model.hyperparameters import CONSTANT, Hyperparameters, Prior
from sweeps.search.curve_model.observations import Array, Observations

MOST_FITTED = 150
"""Maximum number of values to which hyperparameters are fitted: one evaluation of the likelihood takes some
milliseconds."""
BOUND = 4.0
"""Maximum distance of a hyperparameter from the prior's mean, in the prior's standard deviations."""
JITTER = 1e-6
"""Term added to the diagonal of a covariance matrix so that it has a Cholesky factor, and multiplied by ten until it
has."""
ROOT_5 = 5**0.5
FITTED_FIRST, FITTED_AGAIN = 8, 1.2
"""Number of values for the first fit, and ratio of the number for each fit to that for the previous one."""


def fitted_number(number: int) -> int:
    """Return the number of values to which the model was last fitted when there are ``number`` values; at least
    ``FITTED_FIRST``."""
    fitted = FITTED_FIRST
    while (following := int(fitted * FITTED_AGAIN) + 1) <= number:
        fitted = following
    return fitted


def cholesky_factor(covariance: Array) -> Array:
    """Return the lower Cholesky factor of a covariance matrix, with the smallest necessary term added to the diagonal.

    Raises:
        numpy.linalg.LinAlgError: The matrix is not a covariance matrix.
    """
    diagonal = np.diag_indices(len(covariance))
    scale, added = max(1.0, float(covariance[diagonal].mean())), JITTER
    covariance[diagonal] += added
    while True:
        try:
            return np.asarray(cholesky(covariance, lower=True, check_finite=False))
        except np.linalg.LinAlgError:
            if added > scale:
                raise
            covariance[diagonal] += 9 * added
            added *= 10


def inverse_of(factor: Array) -> Array:
    """Return the inverse of a lower Cholesky factor."""
    return np.asarray(dtrtri(factor, lower=1)[0])


def fit(
    data: Observations, groups: Sequence[int], rungs: int, start: Hyperparameters | None = None, iterations: int = 25
) -> Hyperparameters:
    """Find the hyperparameters with the largest posterior density.

    Args:
        data: The observations; if there are many, those of the trials with most values.
        groups: Parameter of each column of the vectors, from 0.
        rungs: Number of rungs.
        start: Initial values; default: at the prior's mean.
        iterations: Maximum number of optimisation steps (L-BFGS).
    """
    parameters = max(groups, default=-1) + 1
    prior = Prior.of(parameters, rungs)
    begin = prior.mean if start is None else start.vector()
    posterior = _LogPosterior(_fitted(data), groups, parameters, rungs, prior)
    low, high = prior.mean - BOUND * prior.deviation, prior.mean + BOUND * prior.deviation
    found = minimize(
        posterior, np.clip(begin, low, high), jac=True, method="L-BFGS-B", bounds=np.stack([low, high], axis=1),
        options={"maxiter": iterations, "maxfun": iterations + 10},
    )  # fmt: skip
    return Hyperparameters.of(found.x, parameters, rungs)


def _fitted(data: Observations) -> Observations:
    """Select the observations of the trials with the most values, up to ``MOST_FITTED`` values; among trials with
    equally many, spread over the search."""
    if len(data) <= MOST_FITTED:
        return data
    counts = np.bincount(data.trials, minlength=len(data.vectors))
    spread = np.random.default_rng(len(data)).random(len(counts))
    order = np.lexsort((spread, -counts))
    chosen = order[: max(int((np.cumsum(counts[order]) <= MOST_FITTED).sum()), 1)]
    return data.of_trials(np.sort(chosen))


class _LogPosterior:
    """Negative logarithm of the hyperparameters' posterior density, up to a constant, and its gradient."""

    def __init__(self, data: Observations, groups: Sequence[int], parameters: int, rungs: int, prior: Prior):
        self._data, self._parameters, self._rungs, self._prior = data, parameters, rungs, prior
        vectors = data.vectors[data.trials]
        self._distances = np.zeros((parameters, len(data), len(data)))
        """Squared distances by parameter."""
        for column, group in enumerate(groups):
            self._distances[group] += (vectors[:, None, column] - vectors[None, :, column]) ** 2
        self._same = (data.trials[:, None] == data.trials[None, :]).astype(float)

    def __call__(self, vector: Array) -> tuple[float, Array]:
        at = Hyperparameters.of(vector, self._parameters, self._rungs)
        values, rungs = self._data.values, self._data.rungs
        inverse_lengths = np.exp(-2 * at.log_lengths)
        root = ROOT_5 * np.sqrt(np.tensordot(inverse_lengths, self._distances, axes=1) + 1e-12)
        decay = np.exp(-root)
        kernel = (1 - at.own) * (1 + root + root * root / 3) * decay + at.own * self._same
        variances, noise = np.exp(at.log_variances), np.exp(at.log_noise)
        rows = at.factors[:, rungs]  # [adding rung, value]
        weight = rows.T @ (variances[:, None] * rows)
        covariance = weight * kernel + CONSTANT * rows.T @ rows
        covariance[np.diag_indices(len(values))] += noise[rungs]
        factor = cholesky_factor(covariance)
        inverse_factor = inverse_of(factor)
        solved = inverse_factor.T @ (inverse_factor @ values)
        score = (vector - self._prior.mean) / self._prior.deviation
        value = 0.5 * float(values @ solved + score @ score) + float(np.log(np.diag(factor)).sum())
        # The derivative with respect to the covariance; multiplied by the covariance's derivative with respect to a
        # hyperparameter, it is the gradient.
        outer = 0.5 * (inverse_factor.T @ inverse_factor - np.outer(solved, solved))
        by_kernel = outer * weight
        by_distance = by_kernel * ((1 - at.own) * (5 / 3) * (1 + root) * decay)
        by_length = np.tensordot(self._distances, by_distance, axes=([1, 2], [0, 1])) * inverse_lengths
        kernel_rows, constant_rows = rows @ (outer * kernel), rows @ outer
        by_variance = variances * (kernel_rows * rows).sum(axis=1)
        by_rows = variances[:, None] * kernel_rows + CONSTANT * constant_rows
        by_slope = [2 * (at.factors_by_slope(each)[:, rungs] * by_rows).sum() for each in range(self._rungs - 1)]
        by_noise = noise * np.bincount(rungs, np.diag(outer), self._rungs)
        stationary = (kernel - at.own * self._same) / (1 - at.own)
        by_own = at.own * (1 - at.own) * (by_kernel * (self._same - stationary)).sum()
        gradient = np.concatenate([by_length, by_variance, by_slope, by_noise, [by_own]])
        return value, gradient + score / self._prior.deviation
