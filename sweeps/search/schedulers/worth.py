"""Worth of continuing a trial: the improvement that it promises by the end, for what it still costs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sweeps.search.rung_links import Link, Predicted, fit_links, predict

RECENT = 30
"""Number of the last trials that tell what a new one would promise."""
Curve = Mapping[float, float]
"""Values of a trial by rung, in the order of the rungs; larger is better."""


@dataclass(frozen=True)
class Worth:
    """Forecasts for the trials of a search, from the curves that there are.

    Worth is the expected improvement on the best value at the end, for a whole training's cost. A new trial costs the
    way to its first rung, and from there the rest only if it continues; ``new`` is its worth if exactly those of the
    recent trials had continued that make it largest. So a trial that is worth less than ``new`` should wait. Where
    early values are sure to tell nothing, all trials promise the same for less than a whole training, and all continue.
    Where they tell much, only the few continue that may be the best.
    """

    end: float
    """The highest rung to which values can be predicted."""
    links: Mapping[float, Link[float]]
    best: float
    """Best value at ``end``."""
    new: float
    """Worth of starting a trial."""

    @property
    def trust(self) -> dict[float, float]:
        """Share of the variance at ``end`` that the values at each rung before it explain."""
        return {rung: predict(self.links, rung, self.end, 0.0).explained for rung in self.links if rung < self.end}

    def predicted(self, curve: Curve) -> Predicted | None:
        """Prediction of a trial's value at ``end``; None if it was there, or has reached no rung."""
        rung = max(curve, default=math.inf)
        return predict(self.links, rung, self.end, curve[rung]) if rung < self.end else None

    def of(self, curve: Curve) -> float | None:
        """Worth of continuing a trial from its last rung; None if it cannot be predicted."""
        predicted = self.predicted(curve)
        if predicted is None:
            return None
        rest = 1 - max(curve) / self.end
        return expected_improvement(predicted.value, math.sqrt(predicted.variance), self.best) / rest


def measure_worth(curves: Sequence[Curve], rungs: Collection[float]) -> Worth | None:
    """Measure how far values at the rungs tell later ones.

    Args:
        curves: Values of all trials, in the order in which they were started.
        rungs: All rungs.

    Returns:
        The forecasts; None as long as too few trials have reached a second rung.
    """
    links = fit_links(curves, sorted(rungs))
    if not links:
        return None
    first, end = min(links), max(link.next for link in links.values())
    best = max(curve[end] for curve in curves if end in curve)
    promises = []
    for curve in [curve for curve in curves if first in curve][-RECENT:]:
        predicted = predict(links, first, end, curve[first])
        promises.append(expected_improvement(predicted.value, math.sqrt(predicted.variance), best))
    return Worth(end, links, best, _worth_of_new(promises, first / end))


def _worth_of_new(promises: Sequence[float], before: float) -> float:
    """Largest expected improvement for a whole training's cost, over all numbers of trials that continue.

    Args:
        promises: Expected improvement of each recent trial, at its first rung.
        before: Cost of the way to the first rung.
    """
    best_first = np.sort(promises)[::-1]
    share = np.arange(1, len(best_first) + 1) / len(best_first)
    return float((np.cumsum(best_first) / len(best_first) / (before + share * (1 - before))).max())


def expected_improvement(mean: float, deviation: float, best: float) -> float:
    """Expected excess of a normally distributed value over ``best``; 0 if it is below."""
    if deviation <= 0:
        return max(mean - best, 0.0)
    score = (mean - best) / deviation
    density = math.exp(-score * score / 2) / math.sqrt(2 * math.pi)
    return deviation * (score * (1 + math.erf(score / math.sqrt(2))) / 2 + density)
