"""Worth of training a trial on: the improvement that it promises by the end, for what it still costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sweeps.search.curve_model.hyperparameters import Hyperparameters
from sweeps.search.curve_model.observations import Array, most_telling, observe
from sweeps.search.curve_model.posterior import Posterior, expected_improvement

FEWEST = 8
"""Fewest values at rungs for the model of learning curves to tell what trials are worth."""
MOST = 200
"""Trials that the model is given at most."""
NEW_COUNTS = 0.7
"""Factor of the worth of a new trial: it is that of the most promising of several points, which is too large."""
SCORES = np.linspace(-2.5, 2.5, 21)
DENSITY = np.exp(-SCORES * SCORES / 2) / np.exp(-SCORES * SCORES / 2).sum()
"""A standard normal distribution by its values and their probabilities."""


@dataclass(frozen=True)
class Worth:
    """Worth of the trials of a search: expected improvement at the end, for the cost of a whole training."""

    trials: Mapping[str, float]
    """Worth of continuing each trial from its last rung; 0 for the least promising of very many."""
    new: float
    """Worth of starting a trial, that goes on after its first rung only if its value there is good enough."""
    rankings: Sequence[Sequence[str]]
    """The trials by what is predicted for their ends, the best first; with several objectives by several weights."""

    @classmethod
    def largest(cls, several: Sequence[Worth]) -> Worth:
        """The largest worth of each trial, for several weights of the objectives."""
        trials = {name: max(each.trials[name] for each in several) for name in several[0].trials}
        return cls(trials, max(each.new for each in several), [each.rankings[0] for each in several])


def measure_worth(
    names: Sequence[str],
    values: Array,
    vectors: Array,
    new: Array,
    rungs: Sequence[float],
    at: Hyperparameters,
    groups: Sequence[int],
    costs: Array,
    costs_of_new: Array,
) -> Worth:
    """Measure what trials are worth, from the curves that there are.

    Args:
        names: The trials that have any value.
        values: Their values, of shape ``[trials, rungs]``, NaN where there is none; smaller is better.
        vectors: Their configurations in the unit cube, of shape ``[trials, columns]``.
        new: Configurations that new trials may have.
        rungs: Positions of all rungs; the last one is the end of a training.
        at: Hyperparameters of the model of learning curves.
        groups: Parameter of each column of the vectors, from 0.
        costs: What the worth of each trial is divided by (``CostModel``).
        costs_of_new: What that of each new trial is divided by.
    """
    end, rows = len(rungs) - 1, most_telling(values, MOST)
    posterior = Posterior(at, groups, observe(vectors[rows], values[rows]))
    mean, deviation = posterior.predict_observed(end)
    is_finished = np.isfinite(values[rows, end])
    best = float(mean[is_finished].min() if is_finished.any() else mean.min())
    promise = expected_improvement(mean, deviation, best)
    last = [rungs[int(np.flatnonzero(np.isfinite(values[row]))[-1])] for row in rows]
    rest = np.maximum(1 - np.array(last) / rungs[-1], 1e-9)
    worth = dict.fromkeys(names, 0.0)
    worth |= zip((names[row] for row in rows), map(float, promise / rest / costs[rows]), strict=True)
    of_new = [
        worth_of_new(mean, deviation, told, best, rungs[0] / rungs[-1]) / cost
        for mean, deviation, told, cost in zip(*posterior.look_ahead(new, end), costs_of_new, strict=True)
    ]
    return Worth(worth, NEW_COUNTS * max(of_new), [[names[rows[place]] for place in np.argsort(mean, kind="stable")]])


def worth_of_new(mean: float, deviation: float, told: float, best: float, before: float) -> float:
    """Largest expected improvement for the cost of a whole training, over all bounds of the value at the first rung
    from which on a new trial continues.

    Args:
        mean: What is predicted for the trial's end.
        deviation: Standard deviation of its value there.
        told: Standard deviation of what will be predicted when the value at the first rung is known.
        best: Value that it has to improve on.
        before: Cost of the way to the first rung, as a part of a whole training.
    """
    left = max(deviation**2 - told**2, 1e-12) ** 0.5
    promise = expected_improvement(mean + told * SCORES, np.full(len(SCORES), left), best)
    order = np.argsort(-promise)
    share, gained = np.cumsum(DENSITY[order]), np.cumsum((DENSITY * promise)[order])
    return float((gained / (before + share * (1 - before))).max())
