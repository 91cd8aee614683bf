"""Worth of continuing a trial: the expected improvement at the end relative to the remaining cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sweeps.search.curve_model.hyperparameters import Hyperparameters
from sweeps.search.curve_model.observations import Array, last_rungs, most_telling, observe
from sweeps.search.curve_model.posterior import Posterior, expected_improvement

FEWEST = 8
"""Minimum number of values at rungs from which the model of learning curves estimates the worth of trials."""
MOST = 200
"""Maximum number of trials from which the model learns."""
NEW_TRIAL_FACTOR = 0.85
"""Correction factor for the worth of a new trial, which the maximum over several points overestimates."""
SCORES = np.linspace(-2.5, 2.5, 21)
DENSITY = np.exp(-SCORES * SCORES / 2) / np.exp(-SCORES * SCORES / 2).sum()
"""Probabilities of ``SCORES`` under a standard normal distribution."""


@dataclass(frozen=True)
class Worth:
    """Worth of the trials of a search: expected improvement at the end, relative to the cost of a whole training."""

    trials: Mapping[str, float]
    """Worth of continuing each trial to its next rung, and beyond only if its value there is good enough; 0 for the
    least promising if there are very many."""
    new: float
    """Worth of starting a trial, which continues after its first rung only if its value there is good enough."""
    rankings: Sequence[Sequence[str]]
    """The trials by their predicted final values, best first; with several objectives, for several weights."""

    @classmethod
    def largest(cls, several: Sequence[Worth]) -> Worth:
        """Return the largest worth of each trial, for several weights of the objectives."""
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
    start_cost: float,
) -> Worth:
    """Measure the worth of trials from the available curves.

    Args:
        names: The trials that have any value.
        values: Values of the trials, of shape ``[trials, rungs]``, NaN where there is none; smaller is better.
        vectors: Configurations of the trials in the unit cube, of shape ``[trials, columns]``.
        new: Configurations that new trials may have.
        rungs: Positions of all rungs; the last one is the end of a training.
        at: Hyperparameters of the model of learning curves.
        groups: Parameter of each column of the vectors, from 0.
        costs: Divisors of the worth of each trial (``CostModel``).
        costs_of_new: Divisors of the worth of each new trial.
        start_cost: Cost of starting a trial, before its first step, as a part of that of a whole training.
    """
    end, rows = len(rungs) - 1, most_telling(values[None], MOST)
    posterior = Posterior(at, groups, observe(vectors[rows], values[rows]))
    positions, last = np.array(rungs) / rungs[-1], last_rungs(values[rows])
    following = np.minimum(last + 1, end)
    mean, deviation, told = posterior.look_ahead_observed(following, end)
    is_finished = np.isfinite(values[rows, end])
    best = float(mean[is_finished].min() if is_finished.any() else mean.min())
    before = np.maximum(positions[following] - positions[last], 1e-9)
    promise = worth_of_going_on(mean, deviation, told, before, 1 - positions[following], best)
    worth = dict.fromkeys(names, 0.0)
    worth |= zip((names[row] for row in rows), map(float, promise / costs[rows]), strict=True)
    first = np.full(len(new), positions[0])
    of_new = worth_of_going_on(*posterior.look_ahead(new, end), start_cost + first, 1 - first, best) / costs_of_new
    ranking = [names[rows[place]] for place in np.argsort(mean, kind="stable")]
    return Worth(worth, NEW_TRIAL_FACTOR * float(of_new.max()), [ranking])


def worth_of_going_on(mean: Array, deviation: Array, told: Array, before: Array, after: Array, best: float) -> Array:
    """Return the expected improvement of continuing trials per cost of a whole training. A trial continues to its end
    only if its value at the next rung is below a threshold; the best threshold is used, which may be infinity.

    Args:
        mean: Predictions for the trials' ends.
        deviation: Standard deviations of their values there.
        told: Standard deviations of what will be predicted when the values at the next rung are known.
        before: Costs of training up to the next rung, as parts of a whole training.
        after: Costs of training from there to the end.
        best: Value that the trials have to improve on.
    """
    left = np.sqrt(np.maximum(deviation**2 - told**2, 1e-12))
    predicted = mean[:, None] + np.abs(told)[:, None] * SCORES
    promise = expected_improvement(predicted, left[:, None], best)  # the most at the lowest score
    gained = np.cumsum(DENSITY * promise, axis=1)
    return np.asarray((gained / (before[:, None] + np.cumsum(DENSITY) * after[:, None])).max(axis=1))
