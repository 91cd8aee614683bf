"""Significance of a night's result: whether it is worse than earlier nights by more than noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, stdev

from sweeps.config.nights import Regression
from sweeps.config.search import Mode
from sweeps.search.significance import gain, rounding

MIN_NIGHTS_FOR_SPREAD = 3
"""Minimum number of earlier nights for an estimate of the spread between nights."""


@dataclass(frozen=True)
class Comparison:
    """Result of comparing a night with earlier ones."""

    usual: float
    """Median of the earlier best values."""
    loss: float
    """Difference by which tonight's best value is worse."""
    allowed: float
    """Difference above which the night is a regression."""

    @property
    def worse(self) -> bool:
        """Whether the night is a regression."""
        return self.loss > self.allowed


def compare_with_earlier(
    mode: Mode, best: float, before: Sequence[float], noise: float | None, rule: Regression
) -> Comparison | None:
    """Compare a night's best value with earlier ones. Nights differ by their seeds (the noise) and by their data (the
    spread between nights); the larger of both determines the allowed difference.

    Args:
        mode: Whether a smaller or a larger value is better.
        best: Tonight's best value.
        before: Best values of earlier nights, oldest first.
        noise: Standard deviation between equal trainings; None if it was never measured.
        rule: Rule for a regression.

    Returns:
        The comparison; None if there is too little data.
    """
    before = before[-rule.nights :]
    spread = stdev(before) if len(before) >= MIN_NIGHTS_FOR_SPREAD else None
    # That equal trainings give equal values (noise 0) does not say how much nights differ by their data.
    known = [each for each in (noise or None, spread) if each is not None]
    if not before or not known:
        return None
    usual = median(before)
    allowed = max(rule.standard_deviations * max(known), rule.min_change, rounding(best, usual))
    return Comparison(usual, -gain(mode, best, usual), allowed)
