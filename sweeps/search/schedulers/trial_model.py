"""Model of a search's trials (curves, costs and points), from which a scheduler computes their worth."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from sweeps.search.curve_model.fit import fit, fitted_number
from sweeps.search.curve_model.hyperparameters import Hyperparameters
from sweeps.search.curve_model.observations import Array, observe, with_worst
from sweeps.search.curve_model.threads import on_one_thread
from sweeps.search.schedulers.costs import Costs
from sweeps.search.schedulers.rung_positions import Rungs
from sweeps.search.schedulers.trial_curves import Curve, TrialCurves, losses
from sweeps.search.schedulers.worth import FEWEST, Worth, measure_worth
from sweeps.search.unit_cube import UnitCube, Vector
from sweeps.search.weighted_objective import as_one, weightings
from sweeps.space.space import Lookup, Point, Space
from sweeps.space.suggester import RandomDraws

NUM_LAST, NUM_RANDOM = 4, 32
"""Number of last suggested points, and of random points, from which the worth of a new trial is estimated."""


class TrialModel:
    """Curves, costs and points of all trials so far, and the worth of each by the model of learning curves."""

    def __init__(self, space: Space, lookup: Lookup, positions: Rungs, longest: float | None, objectives: int):
        """
        Args:
            space: Space of the trials' points.
            lookup: Returns the config's own value at a path.
            positions: Rungs of trainings.
            longest: Resource of a trial that trains to its end; None to learn it from the trials.
            objectives: Number of objectives.
        """
        self._space, self._lookup, self._cube = space, lookup, UnitCube(space)
        self._positions, self._given_longest = positions, longest
        self._weightings = weightings(objectives)
        self._vectors: dict[str, Vector] = {}
        """Points of the trials in the unit cube."""
        self._fitted: tuple[int, list[Hyperparameters]] | None = None
        """Number of the first arrivals to which the models were fitted, and the hyperparameters for each weighting."""
        self._last_points: list[Vector] = []
        """The last suggested points at the time of the last arrival."""
        self._worth: Worth | None = None
        self.longest = longest
        """Resource of the longest training so far, if none was given."""
        self.curves = TrialCurves()
        """Values at rungs."""
        self.costs = Costs(self._cube.groups, self._vectors)
        """Costs of the trials; known if the search has a budget of time."""
        self.start_cost = 0.0
        """Cost of starting a trial, as a fraction of the cost of a whole training; 0 while it is unknown."""
        self.done: dict[str, tuple[float, ...]] = {}
        """Final values of the trials that have trained to their end."""
        self.bad: set[str] = set()
        """Trials that violated a limit, or whose values are no longer finite."""

    # --- what happens to trials ----------------------------------------------------------------------------------

    def add(self, trial: str, point: Point, earlier: Sequence[float] | None = None) -> None:
        """Add a trial that begins.

        Args:
            trial: Id of the trial.
            point: Point of the trial.
            earlier: The point in the unit cube of the space at that time, as earlier versions recorded it.
        """
        self.curves.add(trial)
        vector = self._cube.vector(point)
        recorded = np.array(vector if earlier is None else earlier)
        self._vectors[trial] = recorded if recorded.shape == vector.shape else vector

    def arrive(self, trial: str, rung: float, values: tuple[float, ...], seconds: float | None) -> None:
        """Add the values of a trial that reached a rung.

        Args:
            trial: Id of the trial.
            rung: The rung.
            values: Values of all objectives; larger is better.
            seconds: Seconds of its training for a unit of the resource, if known.
        """
        self.curves.arrive(trial, rung, values)
        self._last_points = [*itertools.islice(reversed(self._vectors.values()), NUM_LAST)]
        self._worth = None
        if seconds:
            self.costs.add(trial, seconds)

    def finish(self, trial: str, rung: float, values: tuple[float, ...]) -> None:
        """Record that a trial, whose values were added, has trained to its end."""
        self.done[trial] = values
        self.longest = self._given_longest or max(self.longest or 0.0, rung)

    def spoil(self, trial: str) -> None:
        """Record that a trial can no longer be the best: it diverged or violated a limit."""
        self.bad.add(trial)
        self._worth = None

    # --- what trials are worth -----------------------------------------------------------------------------------

    def rungs(self) -> list[float]:
        """Return the positions of all known rungs; the last one is the end of a training."""
        if self._given_longest is not None:
            return sorted(self.curves.rungs.union(self._positions.up_to(self._given_longest)))
        if self.longest is None:  # the next rung stands for the end, which no trial has reached yet
            return [*sorted(self.curves.rungs), self._positions.after(max(self.curves.rungs))]
        return self._positions.up_to(max(self.curves.rungs))  # trials of other lengths end between two of them

    def worth(self) -> Worth | None:
        """Return the worth of the trials; None while there are too few values."""
        if self._worth is None and len(self.curves.arrivals) >= FEWEST:
            self._worth = self._measure()
        return self._worth

    @on_one_thread
    def _measure(self) -> Worth:
        rungs, curves = self.rungs(), {name: curve for name, curve in self.curves.by_trial.items() if curve}
        bad = np.array([name in self.bad for name in curves])
        values = with_worst(self._losses(curves, rungs), bad)
        vectors = np.array([self._vectors[name] for name in curves])
        names, groups = [*curves], self._cube.groups
        new = np.vstack([*self._last_points, self._random_points])  # possible points of a new trial
        divisors = self.costs.divisors(names, new)
        return Worth.largest(
            [
                measure_worth(
                    names, as_one(values, weights), vectors, new, rungs, at, groups, *divisors, self.start_cost
                )
                for weights, at in zip(self._weightings, self._hyperparameters(rungs), strict=True)
            ]
        )

    def _losses(self, curves: Mapping[str, Curve], rungs: list[float]) -> Array:
        """Return values of shape ``[objectives, curves, rungs]``. A trial that has trained to its end has its final
        value at the last rung, regardless of its length."""
        whole = {
            name: curve | {rungs[-1]: self.done[name]} if len(curve) == len(self.curves.by_trial[name]) else curve
            for name, curve in curves.items()
            if name in self.done
        }
        return losses({**curves, **whole}, rungs)

    def _hyperparameters(self, rungs: list[float]) -> list[Hyperparameters]:
        """Return the hyperparameters of the models, fitted to a prefix of the values that is the same after a
        restart."""
        number = fitted_number(len(self.curves.arrivals))
        if self._fitted is None or self._fitted[0] != number or self._fitted[1][0].rungs != len(rungs):
            curves = self.curves.of_first(number)
            values, vectors = self._losses(curves, rungs), np.array([self._vectors[name] for name in curves])
            observed = [observe(vectors, as_one(values, weights)) for weights in self._weightings]
            self._fitted = number, [fit(data, self._cube.groups, len(rungs)) for data in observed]
        return self._fitted[1]

    @cached_property
    def _random_points(self) -> Vector:
        draws = RandomDraws(0)
        points: list[Any] = [self._space.sample(draws, self._lookup) for _ in range(NUM_RANDOM)]
        return self._cube.matrix(points)
