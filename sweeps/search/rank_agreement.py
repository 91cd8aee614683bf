"""Rank correlation of two lists of values, with an interval that is exact for few points."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sweeps.tracking.stage_results import Agreement

MAX_POINTS = 100
"""Maximum number of points that are compared (the first ones), since counting permutations takes memory and time."""
WIDEST = 50.0
"""Maximum parameter of Mallows' model; beyond it, one order has nearly all probability."""


def agreement(first: Sequence[float], second: Sequence[float], confidence: float = 0.95) -> Agreement:
    """Measure how well two lists of values agree on the order of the same points.

    The interval inverts the distribution of the number of pairs in opposite orders under Mallows' model (1957), in
    which the probability of an order falls exponentially with that number. Unlike intervals by Fisher's transformation
    it holds for few points, and where all pairs agree.

    Args:
        first: One value of each point; finite numbers.
        second: The other value of each point.
        confidence: Probability of the interval, between 0 and 1.

    Returns:
        Kendall's rank correlation with its interval. Equal values count as half in order.

    Raises:
        ValueError: The lists have different lengths.

    Example:
        >>> from sweeps.search.rank_agreement import agreement
        >>> found = agreement([1, 2, 3, 4, 5], [10, 20, 30, 50, 40])
        >>> found.tau, round(found.low, 2), round(found.high, 2)
        (0.8, -0.1, 0.99)
    """
    if len(first) != len(second):
        raise ValueError(f"the lists have {len(first)} and {len(second)} values; each point needs one in both")
    one, other = np.array(first[:MAX_POINTS], float), np.array(second[:MAX_POINTS], float)
    points, pairs = len(one), len(one) * (len(one) - 1) // 2
    if points < 2:
        return Agreement(points=points, tau=None, confidence=confidence)
    above = np.triu_indices(points, 1)
    signs = np.sign(np.subtract.outer(one, one)) * np.sign(np.subtract.outer(other, other))
    discordant = (pairs - float(signs[above].sum())) / 2
    numbers, counts = np.arange(pairs + 1), np.log(_permutations(points))

    def distribution(parameter: float) -> np.ndarray:
        weights = counts + parameter * numbers
        weights = np.exp(weights - weights.max())
        return np.asarray(weights / weights.sum())

    def limit(of: Callable[[np.ndarray], float]) -> float:
        from scipy.optimize import brentq  # takes a while, and the service's pages do not need it

        parameter = brentq(lambda each: of(distribution(each)) - (1 - confidence) / 2, -WIDEST, WIDEST)
        return float(1 - 2 * distribution(parameter) @ numbers / pairs)

    fewest, most = int(np.floor(discordant)), int(np.ceil(discordant))
    return Agreement(
        points=points,
        tau=round(1 - 2 * discordant / pairs, 12),
        low=-1.0 if most == pairs else limit(lambda chances: float(chances[: most + 1].sum())),
        high=1.0 if fewest == 0 else limit(lambda chances: float(chances[fewest:].sum())),
        confidence=confidence,
    )


def _permutations(points: int) -> np.ndarray:
    """Return the number of permutations for each number of inversions (Mahonian numbers), divided by the largest."""
    counts = np.ones(1)
    for length in range(2, points + 1):
        counts = np.convolve(counts, np.ones(length))
        counts /= counts.max()
    return counts
