"""Worth of training a trial on: the improvement that it promises by the end, for what it still costs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sweeps.search.curve_model.hyperparameters import Hyperparameters
from sweeps.search.curve_model.observations import Array, most_telling, observe
from sweeps.search.curve_model.posterior import Posterior, expected_improvement

FEWEST = 8
"""Fewest values at rungs for the model of learning curves to tell what trials are worth."""
MOST = 200
"""Trials that the model is given at most."""
NEW_COUNTS = 0.5
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
    leader: str | None
    """The trial that is predicted to be the best, unless it is finished."""


def measure_worth(
    curves: Mapping[str, Mapping[float, float]],
    live: Collection[str],
    vectors: Mapping[str, Array],
    new: Array,
    rungs: Sequence[float],
    at: Hyperparameters,
    groups: Sequence[int],
) -> Worth:
    """Measure what trials are worth, from the curves that there are.

    Args:
        curves: Values by rung of each trial that has any; smaller is better.
        live: The trials that can be trained on.
        vectors: Configurations of the trials in the unit cube.
        new: Configurations that new trials may have.
        rungs: Positions of all rungs; the last one is the end of a training.
        at: Hyperparameters of the model of learning curves.
        groups: Parameter of each column of the vectors, from 0.
    """
    names, end = list(curves), len(rungs) - 1
    values = as_matrix(curves.values(), rungs)
    rows = most_telling(values, MOST)
    posterior = Posterior(at, groups, observe(np.array([vectors[names[row]] for row in rows]), values[rows]))
    mean, deviation = posterior.predict_observed(end)
    is_finished = np.isfinite(values[rows, end])
    best = float(mean[is_finished].min() if is_finished.any() else mean.min())
    promise = expected_improvement(mean, deviation, best)
    rest = [max(1 - max(curves[names[row]]) / rungs[-1], 1e-9) for row in rows]
    worth = dict.fromkeys(names, 0.0)
    worth |= zip((names[row] for row in rows), map(float, promise / rest), strict=True)
    of_new = [
        worth_of_new(mean, deviation, told, best, rungs[0] / rungs[-1])
        for mean, deviation, told in zip(*posterior.look_ahead(new, end), strict=True)
    ]
    can_win = is_finished | np.array([names[row] in live for row in rows])
    leader = int(np.argmin(np.where(can_win, mean, np.inf)))
    is_open = can_win[leader] and not is_finished[leader]
    return Worth(worth, NEW_COUNTS * max(of_new), names[rows[leader]] if is_open else None)


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


def as_matrix(curves: Iterable[Mapping[float, float]], rungs: Sequence[float]) -> Array:
    """Values of shape ``[curves, rungs]``, NaN where a curve has none."""
    rows = [[curve.get(rung, np.nan) for rung in rungs] for curve in curves]
    return np.array(rows, dtype=float).reshape(len(rows), len(rungs))
