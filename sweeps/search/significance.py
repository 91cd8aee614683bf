"""Significance of differences between trainings: measures the noise between repetitions, and whether a difference
exceeds it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from sweeps.config.search import Mode

Group = Sequence[float]
"""Values of trainings that differ only by their seed."""
ROUNDING = 1e-9
"""Relative difference of two values that counts as rounding."""


def pooled_deviation(groups: Iterable[Group]) -> float | None:
    """Return the pooled standard deviation within groups; None if no group has two values."""
    within = [(len(group) - 1, variance(group)) for group in groups if len(group) > 1]
    freedom = sum(degrees for degrees, _ in within)
    return math.sqrt(sum(degrees * each for degrees, each in within) / freedom) if freedom else None


def gain(mode: Mode, new: float, old: float) -> float:
    """Return by how much the new value is better."""
    return old - new if mode == "min" else new - old


@dataclass(frozen=True)
class Duel:
    """Result of comparing champion and challenger on the same data."""

    gain: float
    """Difference of the means, positive if the challenger is better."""
    needed: float
    """Difference above which the challenger wins."""

    @property
    def won(self) -> bool:
        """Whether the challenger is better by more than noise."""
        return self.gain > self.needed


def duel(
    mode: Mode,
    champions: Group,
    challengers: Group,
    noise: float,
    standard_deviations: float,
    min_change: float = 0.0,
) -> Duel:
    """Compare two groups by their means.

    Args:
        mode: Whether a smaller or a larger value is better.
        champions: At least one value.
        challengers: At least one value.
        noise: Standard deviation of one value.
        standard_deviations: Standard deviations of the difference of the means that must be exceeded.
        min_change: Difference that must be exceeded regardless of the noise, which is 0 if equal trainings give equal
            values.
    """
    old, new = fmean(champions), fmean(challengers)
    of_difference = standard_deviations * noise * math.sqrt(1 / len(champions) + 1 / len(challengers))
    return Duel(gain(mode, new, old), max(of_difference, min_change, rounding(old, new)))


def rounding(*values: float) -> float:
    """Return the tolerance within which values differ only by rounding."""
    return ROUNDING * max(map(abs, values))
