"""Values of trials at rungs, in the form of the model of learning curves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

GOOD = 0.1
"""Quantile of all values below which the scale is linear."""
WORST, BEST = 3.0, -30.0
"""Maximum value before standardisation, ten times as far from the good values as the median; and the value below which
the scale is logarithmic, for implausibly good values."""


@dataclass(frozen=True)
class Observations:
    """Values on the model's scale; smaller is better."""

    vectors: Array
    """Configurations in the unit cube, of shape ``[trials, columns]``."""
    trials: Indices
    """Row of ``vectors`` for each value."""
    rungs: Indices
    """Index of the rung of each value, from 0."""
    values: Array

    def __len__(self) -> int:
        return len(self.values)

    def of_trials(self, rows: Indices) -> Observations:
        """Return the observations of some trials, given by their rows in ascending order."""
        chosen = np.isin(self.trials, rows)
        return Observations(
            self.vectors[rows], np.searchsorted(rows, self.trials[chosen]), self.rungs[chosen], self.values[chosen]
        )

    def with_values(self, vectors: Array, rung: int, values: Array) -> Observations:
        """Return the observations plus, for each further configuration, one value at a rung."""
        count = len(vectors)
        return Observations(
            np.vstack([self.vectors, vectors]),
            np.concatenate([self.trials, len(self.vectors) + np.arange(count)]),
            np.concatenate([self.rungs, np.full(count, rung)]),
            np.concatenate([self.values, values]),
        )


def observe_one_rung(vectors: Array, values: Array) -> Observations:
    """Return a value for each configuration, on the model's scale already, as observations at a single rung."""
    return Observations(vectors, np.arange(len(values)), np.zeros(len(values), dtype=np.intp), values)


def observe(vectors: Array, values: Array) -> Observations:
    """Convert values to the model's scale: linear for good ones, logarithmic for bad ones, of variance 1.

    Otherwise a few diverged trainings would decide the model. If good values were also on a logarithmic scale, each
    small gain at the best place so far would look large, and differences elsewhere small.

    Args:
        vectors: Configurations in the unit cube, of shape ``[trials, columns]``.
        values: Values of shape ``[trials, rungs]``; smaller is better, NaN where a trial was not at a rung.
    """
    known = np.isfinite(values)
    trials, rungs = np.nonzero(known)
    return Observations(vectors, trials, rungs, scaled(values)[known])


def scaled(values: Array) -> Array:
    """Return values on the model's scale, of the same shape as for ``observe``."""
    known = np.isfinite(values)
    good, middle = np.quantile(values[known], (GOOD, 0.5))
    unequal = values[known & (values != good)]
    # The second width is for mostly equal values, such as accuracies of models that predict a single class.
    width = middle - good or (np.median(np.abs(unequal - good)) if len(unequal) else 1.0)
    distance = (values - good) / width
    good_ones = np.maximum(distance, BEST) - np.log1p(np.maximum(BEST - distance, 0.0))
    curved = np.where(distance < 0, good_ones, np.minimum(np.arcsinh(distance), WORST))
    return np.asarray((curved - curved[known].mean()) / (curved[known].std() + 1e-12))


def with_worst(values: Array, bad: npt.NDArray[np.bool_]) -> Array:
    """Return the values with the worst value of a rung for bad trials, at each rung that they reached and at the first.

    Args:
        values: Values of shape ``[objectives, trials, rungs]``, as for ``observe``.
        bad: Which trials diverged or broke a limit.
    """
    reached = np.isfinite(values)
    worst = np.max(values, axis=1, where=reached, initial=-np.inf, keepdims=True)
    worst = np.where(np.isfinite(worst), worst, np.nan)
    reached[:, :, 0] = True
    return np.where(bad[:, None], np.where(reached, worst, np.nan), values)


def most_telling(values: Array, most: int) -> Indices:
    """Select the trials to learn from if there are too many: half are the best of each rung, the others are spread
    evenly. Returns their rows.

    Args:
        values: Values of shape ``[objectives, trials, rungs]``, as for ``observe``.
        most: Number of trials.
    """
    count = values.shape[1]
    if count <= most:
        return np.arange(count)
    best = np.stack([_best_first(each) for each in values], axis=1).ravel()
    chosen = set([*dict.fromkeys(best.tolist())][: most // 2])
    others = [row for row in range(count) if row not in chosen]
    room = most - len(chosen)
    return np.array(sorted(chosen | {others[index * len(others) // room] for index in range(room)}), dtype=np.intp)


def _best_first(values: Array) -> Indices:
    """Return the rows of the trials: first the best of each last rung, then the second best, and so on."""
    count, last = len(values), last_rungs(values)
    order = np.lexsort((values[np.arange(count), last], last))
    place = np.empty(count, dtype=np.intp)  # among those of the same last rung
    place[order] = np.arange(count) - np.searchsorted(last[order], last[order])
    return np.lexsort((-last, place))


def last_rungs(values: Array) -> Indices:
    """Return the index of the last rung at which each trial has a value. ``values``: as for ``observe``."""
    reached = np.isfinite(values)
    return np.asarray(reached.shape[1] - 1 - np.argmax(reached[:, ::-1], axis=1))
