"""Prediction of a trial's value at a later rung from an earlier one, and how much of it that explains."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

MIN_PAIRS = 4
"""Fewest trials with values at two rungs, for the later value to be predicted from the earlier one."""
PRIOR_PAIRS = 1.0
"""Weight of the assumption that an earlier value tells nothing, in trials of average spread: slopes of few pairs are
shrunk."""
OUTLIER = 3.0
"""Distance from the quartiles, in interquartile ranges, to which values are clipped: one diverged trial would
otherwise decide a slope."""

Vector = npt.NDArray[np.float64]
Rung = TypeVar("Rung", int, float)


class Predicted(NamedTuple):
    """Prediction of a trial's value at a later rung."""

    value: float
    variance: float
    """Mean squared error of the prediction."""
    explained: float
    """Share of the variance at the later rung that is explained."""


@dataclass(frozen=True)
class Link(Generic[Rung]):
    """Linear prediction of the value at the next rung from that at a rung."""

    next: Rung
    """The next rung."""
    intercept: float
    slope: float
    residual: float
    """Mean squared distance of the pairs from the line."""
    pairs: int
    """Number of trials with both values."""
    center: float
    """Mean of their earlier values."""
    precision: float
    """Summed squared distance of their earlier values from it, with the prior's."""
    explained: float
    """Share of the variance at the next rung that the prediction explains among all trials that reached this one."""


def fit_links(curves: Sequence[Mapping[Rung, float]], rungs: Sequence[Rung]) -> dict[Rung, Link[Rung]]:
    """Predictions from each rung to the next, from the first one on as far as enough trials have both.

    A scheduler lets only the best go on, by their earlier values; that biases a correlation, but not a regression's
    slope, so the share of variance that it explains is computed for the spread of all trials at the earlier rung.

    Args:
        curves: The trials' values by rung.
        rungs: All rungs, ascending.
    """
    links: dict[Rung, Link[Rung]] = {}
    for rung, following in itertools.pairwise(rungs):
        pairs = np.array([(curve[rung], curve[following]) for curve in curves if rung in curve and following in curve])
        if len(pairs) < MIN_PAIRS:
            break
        every = clipped(np.array([curve[rung] for curve in curves if rung in curve]))
        links[rung] = _link(clipped(pairs[:, 0]), clipped(pairs[:, 1]), float(every.var()), following)
    return links


def _link(earlier: Vector, later: Vector, spread: float, following: Rung) -> Link[Rung]:
    """Regression of later on earlier values, for trials whose earlier values have the variance ``spread``."""
    centered = earlier - earlier.mean()
    precision = float(centered @ centered + PRIOR_PAIRS * spread + 1e-300)
    slope = float(centered @ (later - later.mean()) / precision)
    intercept = float(later.mean() - slope * earlier.mean())
    residual = float(((later - intercept - slope * earlier) ** 2).sum() / (len(later) - 2))
    told = slope * slope * spread
    explained = told / (told + residual) if told + residual > 0 else 0.0
    return Link(following, intercept, slope, residual, len(later), float(earlier.mean()), precision, explained)


def clipped(values: Vector) -> Vector:
    """Values without outliers."""
    low, high = np.quantile(values, (0.25, 0.75))
    margin = OUTLIER * (high - low)
    return np.asarray(values if margin == 0 else np.clip(values, low - margin, high + margin))


def predict(links: Mapping[Rung, Link[Rung]], rung: Rung, end: Rung, value: float) -> Predicted:
    """Predict a value at a later rung, over the rungs between.

    Args:
        links: The links from ``rung`` on, as far as ``end``.
        rung: The rung of the value.
        end: The later rung.
        value: The value.
    """
    explained, variance = 1.0, 0.0
    while rung < end:
        link = links[rung]
        # Errors of the line itself, too: few pairs leave it open what a trial far from them would become.
        of_line = 1 / link.pairs + ((value - link.center) ** 2 + variance) / link.precision
        variance = link.slope**2 * variance + link.residual * (1 + of_line)
        value = link.intercept + link.slope * value
        explained, rung = explained * link.explained, link.next
    return Predicted(value, variance, explained)
