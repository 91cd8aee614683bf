"""How far equal trainings differ, and whether a difference is more than that."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev, variance

from sweeps.config.nights import Regression
from sweeps.config.search import Mode

Group = Sequence[float]
"""Values of equal trainings on equal data, which differ by their seed alone."""
FEWEST_FOR_SPREAD = 3
"""Nights before, from which on it is known how far nights differ anyway."""


def pooled(groups: Iterable[Group]) -> float | None:
    """The standard deviation within groups, of all of them together; None where none has two values."""
    within = [(len(group) - 1, variance(group)) for group in groups if len(group) > 1]
    freedom = sum(degrees for degrees, _ in within)
    return math.sqrt(sum(degrees * each for degrees, each in within) / freedom) if freedom else None


def gain(mode: Mode, new: float, old: float) -> float:
    """By how much the new value is better."""
    return old - new if mode == "min" else new - old


@dataclass(frozen=True)
class Duel:
    """Two configurations on the same data."""

    gain: float
    """By how much the second one's mean is better."""
    needed: float
    """By how much it must be, to be more than noise."""

    @property
    def won(self) -> bool:
        return self.gain > self.needed


def duel(mode: Mode, champions: Group, challengers: Group, noise: float, standard_deviations: float) -> Duel:
    """Compare two groups by their means.

    Args:
        mode: Whether a smaller or a larger value is better.
        champions: At least one value.
        challengers: At least one value.
        noise: Standard deviation of one value.
        standard_deviations: Of the difference of the means, which must be exceeded.
    """
    of_difference = noise * math.sqrt(1 / len(champions) + 1 / len(challengers))
    return Duel(gain(mode, fmean(challengers), fmean(champions)), standard_deviations * of_difference)


@dataclass(frozen=True)
class Comparison:
    """A night beside those before."""

    usual: float
    """The median of their best values."""
    loss: float
    """By how much tonight's best is worse."""
    allowed: float
    """By how much it may be."""

    @property
    def worse(self) -> bool:
        return self.loss > self.allowed


def beside_nights_before(
    mode: Mode, best: float, before: Sequence[float], noise: float | None, rule: Regression
) -> Comparison | None:
    """Whether a night's best is worse than usual. Nights differ by their seeds, which is the noise, and by their data,
    which shows once there are three of them: the larger of the two is what a night may differ by.

    Args:
        mode: Whether a smaller or a larger value is better.
        best: Tonight's best value.
        before: The best values of the nights before, the oldest first.
        noise: Standard deviation between equal trainings; None where it was never measured.
        rule: What counts as worse.

    Returns:
        None as long as it cannot be told.
    """
    before = before[-rule.nights :]
    spread = stdev(before) if len(before) >= FEWEST_FOR_SPREAD else None
    known = [each for each in (noise, spread) if each is not None]
    if not before or not known:
        return None
    usual = median(before)
    return Comparison(usual, -gain(mode, best, usual), rule.standard_deviations * max(known))
