"""Candidates for the next point: random points of a space, and points near given ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sweeps.search.unit_cube import UnitCube, Vector
from sweeps.space.space import Lookup, Point, Space
from sweeps.space.suggester import RandomDraws, Suggester

POOL = 1500
"""Number of random points that are drawn once. Each suggestion takes its candidates from them, since drawing new ones
would take longer than using them."""
CHANGED = 0.5
"""Probability that a parameter of a near point differs from the original point."""

Allows = Callable[[Point], bool]
Parameters = dict[str, Any]
"""Values as Optuna stores them: choices as text or number, ordered choices as their index."""


class Candidates(NamedTuple):
    """Candidate points, as parameters and as vectors."""

    parameters: list[Parameters]
    vectors: Vector
    """The same points in the unit cube, of shape ``[points, columns]``."""

    def with_others(self, others: Candidates) -> Candidates:
        """Return these candidates followed by others."""
        return Candidates(self.parameters + others.parameters, np.vstack([self.vectors, others.vectors]))


class CandidateSource:
    """Draws candidate points from a space."""

    def __init__(self, space: Space, cube: UnitCube, lookup: Lookup, seed: int, allows: Allows):
        """
        Args:
            allows: Whether the constraints hold at a point; other points are left out.
        """
        self._space, self._cube, self._lookup, self._seed, self._allows = space, cube, lookup, seed, allows
        self._pool: Candidates | None = None

    def random(self, number: int, seed: int) -> Candidates:
        if self._pool is None:
            draws = [RandomDraws(self._seed)] * POOL
            self._pool = self._sampled(draws, self._allows)
            if not self._pool.parameters:  # too few points are allowed to find any at random
                self._pool = self._sampled(draws, lambda point: True)
        count = len(self._pool.parameters)
        chosen = np.random.default_rng(seed).choice(count, min(number, count), replace=False)
        return Candidates([self._pool.parameters[index] for index in chosen], self._pool.vectors[chosen])

    def near(self, given: Sequence[Parameters], widths: Sequence[float], number: int, seed: int) -> Candidates:
        """Return points near given ones, which are used in turn.

        Args:
            widths: Standard deviations of the changes, as parts of a range; used in turn as well.
        """
        draws = [NearDraws(seed + each, given[each % len(given)], widths[each % len(widths)]) for each in range(number)]
        return self._sampled(draws, self._allows)

    def _sampled(self, draws: Sequence[Suggester], allows: Allows) -> Candidates:
        sampled = (self._space.sample(each, self._lookup) for each in draws)
        allowed = [point for point in sampled if allows(point)]
        return Candidates([self._space.encode(point) for point in allowed], self._cube.matrix(allowed))


class NearDraws(RandomDraws):
    """Suggests values near those of a point; a parameter that the point lacks is random."""

    def __init__(self, seed: int, point: Mapping[str, Any], width: float):
        """
        Args:
            seed: Seed of the changes.
            point: The point, as Optuna stores it.
            width: Standard deviation of a change, as a part of the range.
        """
        super().__init__(seed)
        self._point, self._width = point, width

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        if name not in self._point:
            return super().suggest_float(name, low, high, step=step, log=log)
        value = float(self._point[name])
        if self._keeps() or low == high:
            return value
        scale, back = (math.log, math.exp) if log else (float, float)
        value = back(self._moved(scale(value), scale(low), scale(high)))
        if step is not None:
            value = low + step * round((value - low) / step)
        return min(max(value, low), high)

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        if name not in self._point:
            return super().suggest_int(name, low, high, step=step, log=log)
        value = int(self._point[name])
        if self._keeps() or low == high:
            return value
        if log:
            value = round(math.exp(self._moved(math.log(value), math.log(low), math.log(high))))
        else:
            least = 0.7 * step / (high - low)  # a change of less than a half step would be none
            value = round(self._moved(value, low, high, max(self._width, least)))
        last = low + (high - low) // step * step
        return min(max(low + step * round((value - low) / step), low), last)

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        if name in self._point and self._keeps():
            return self._point[name]
        return super().suggest_categorical(name, choices)

    def _keeps(self) -> bool:
        return self._random.random() >= CHANGED

    def _moved(self, value: float, low: float, high: float, width: float | None = None) -> float:
        """Return the value after a random change, reflected at the bounds."""
        position = (value - low) / (high - low) + self._random.gauss(0, self._width if width is None else width)
        position = abs(position)
        position = 2 - position if position > 1 else position
        return low + min(max(position, 0.0), 1.0) * (high - low)
