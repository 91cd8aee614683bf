"""Values of trials at rungs, as a scheduler compares them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from sweeps.search.curve_model.observations import Array

Curve = dict[float, tuple[float, ...]]
"""Values of all objectives by rung (larger is better)."""


class TrialCurves:
    """Curves of the trials of a search, in the order of their starts."""

    def __init__(self) -> None:
        self.by_trial: dict[str, Curve] = {}
        self.arrivals: list[tuple[str, float]] = []
        """All trials and the rungs that they reached, in order."""
        self.rungs: set[float] = set()
        """All rungs that any trial has reached."""
        self._steps, self._num_begun = 0.0, 0
        """Steps of all trials up to their last rungs, and number of trials that reached a rung."""

    def add(self, trial: str) -> None:
        """Add a trial that begins; a known trial is ignored."""
        self.by_trial.setdefault(trial, {})

    def arrive(self, trial: str, rung: float, values: tuple[float, ...]) -> None:
        """Add the values of a trial that reached a rung; only the first values at a rung count."""
        curve = self.by_trial[trial]
        self._num_begun += not curve
        self._steps += max(rung - max(curve, default=0.0), 0.0)
        curve.setdefault(rung, values)
        self.arrivals.append((trial, rung))
        self.rungs.add(rung)

    def of_first(self, number: int) -> dict[str, Curve]:
        """Return the curves as they were after the first ``number`` arrivals at rungs."""
        curves: dict[str, Curve] = {}
        for trial, rung in self.arrivals[:number]:
            curves.setdefault(trial, {})[rung] = self.by_trial[trial][rung]
        return curves

    def is_among_best(self, trial: str, eta: float) -> bool:
        """Whether a trial is among the best 1/eta at the last rung that it reached, by any objective."""
        rung = max(self.by_trial[trial])
        there = np.array([curve[rung] for curve in self.by_trial.values() if rung in curve])
        least = np.sort(there, axis=0)[-math.ceil(len(there) / eta)]
        return bool((np.array(self.by_trial[trial][rung]) >= least).any())

    def steps(self, training_on: Collection[str], rungs: Sequence[float]) -> tuple[float, float]:
        """Return the steps of all trials up to their last rungs, and how many of these came after the first rung.

        Args:
            training_on: Trials whose steps to their next rung count, too.
            rungs: All rungs, ascending.
        """
        coming = []
        for trial in training_on:
            if curve := self.by_trial[trial]:
                reached = max(curve)
                coming.append(next((rung for rung in rungs if rung > reached), reached) - reached)
        every = self._steps + math.fsum(coming)  # fsum is the same in any order
        return every, every - self._num_begun * rungs[0]


def losses(curves: Mapping[str, Curve], rungs: Sequence[float]) -> Array:
    """Return values of shape ``[objectives, curves, rungs]``, NaN where a curve has none; smaller is better."""
    objectives = next(len(values) for curve in curves.values() for values in curve.values())
    nothing = (math.nan,) * objectives
    return -np.array([[curve.get(rung, nothing) for rung in rungs] for curve in curves.values()]).transpose(2, 0, 1)
