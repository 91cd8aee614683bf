"""Combines several objectives into one: the augmented Chebyshev norm of their distances from the best value of each.

For any weights, its minimum is on the Pareto front (Knowles, 2006, https://doi.org/10.1109/TEVC.2005.851274, eq. 2).
"""

from __future__ import annotations

import numpy as np

from sweeps.search.curve_model.observations import Array, scaled

ALL_COUNT = 0.05
"""Weight of the objectives' sum beside the largest one (Knowles, 2006)."""


def weighted(values: Array, weights: Array, best: Array) -> Array:
    """Return the weighted objective.

    Args:
        values: Values of shape ``[objectives, ...]`` on comparable scales; smaller is better.
        weights: Weight of each objective.
        best: Best value of each objective.
    """
    shape = (-1, *[1] * (values.ndim - 1))
    distances = weights.reshape(shape) * (values - best.reshape(shape))
    return np.asarray(distances.max(axis=0) + ALL_COUNT * distances.sum(axis=0))


def weightings(objectives: int) -> Array:
    """Return weights that cover the Pareto front: each objective alone, and all equally.

    Args:
        objectives: Number of objectives.

    Returns:
        Weights of shape ``[weightings, objectives]``; for one objective, 1.

    >>> weightings(2).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
    """
    alone = np.eye(objectives)
    return alone if objectives == 1 else np.vstack([alone, np.full(objectives, 1 / objectives)])


def as_one(values: Array, weights: Array) -> Array:
    """Return the weighted objective of reported values.

    Args:
        values: Values of shape ``[objectives, trials, rungs]``, NaN where there is none; smaller is better.
        weights: Weight of each objective.
    """
    if len(values) == 1:
        return np.asarray(values[0])
    comparable = np.array([scaled(each) for each in values])
    return weighted(comparable, weights, np.nanmin(comparable, axis=(1, 2)))
