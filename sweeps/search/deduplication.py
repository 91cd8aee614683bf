"""Which points were trained already, and which of a finite space are left."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sweeps.config.space import FloatDistribution
from sweeps.errors import ConfigError
from sweeps.space.distributions import Lookup, RandomDraws, Space

RANDOM_DRAWS = 1000
"""Random points to look at in an endless space, before it is taken to have no other."""

Point = Mapping[str, Any]


class KnownPoints:
    """The points that need not be trained again, equal by what is trained: floats with a step by the step they are
    at, the rest exactly."""

    def __init__(self, space: Space, lookup: Lookup, order: Sequence[Point] | None = None):
        """
        Args:
            space: Of the points.
            lookup: Gives the value of what conditions name but the space does not search.
            order: All points that there are, in the order in which to take them (a grid); default: those of the space.
        """
        self._space = space
        self._lookup = lookup
        self._known: dict[str, str] = {}
        self._left = None if order is None else {self._key(point): dict(point) for point in order}
        self._endless = False

    def add(self, point: Point, why: str) -> None:
        """
        Args:
            point: Not to be trained again.
            why: Which trial had it, or what is wrong with it.
        """
        key = self._key(point)
        self._known.setdefault(key, why)
        if self._left is not None:
            self._left.pop(key, None)

    def why(self, point: Point) -> str | None:
        """Why a point is not to be trained again; None if it may be."""
        return self._known.get(self._key(point))

    @property
    def exhausted(self) -> bool:
        """Whether all points of a finite space are known, as far as was found out yet."""
        return self._left is not None and not self._left

    def unknown(self, seed: int | None, invalid: Callable[[Point], str | None]) -> Iterator[dict[str, Any]]:
        """Points that are not known and can be trained. There may be none, or too few to be found.

        Args:
            seed: Of their random order; None: in the order that they are listed in.
            invalid: Why a point cannot be trained; None if it can.
        """
        for point in self._ordered(seed):
            if self.why(point) is None:
                reason = invalid(point)
                if reason is None:
                    yield point
                else:
                    self.add(point, reason)

    def _ordered(self, seed: int | None) -> Iterator[dict[str, Any]]:
        left = self._listed()
        if left is None:
            draws = RandomDraws(seed or 0)
            yield from (self._space.sample(draws, self._lookup) for _ in range(RANDOM_DRAWS))
        else:
            points = list(left.values())
            if seed is not None:
                random.Random(seed).shuffle(points)
            yield from points

    def _listed(self) -> Mapping[str, dict[str, Any]] | None:
        """The points that are not known, in order; None if they are too many to list."""
        if self._left is None and not self._endless:
            try:
                points = self._space.grid(self._lookup)
            except ConfigError:
                self._endless = True
            else:
                keys = ((self._key(point), point) for point in points)
                self._left = {key: point for key, point in keys if key not in self._known}
        return self._left

    def _key(self, point: Point) -> str:
        values = {path: self._at(path, value) for path, value in point.items()}
        return json.dumps(values, sort_keys=True, default=str)

    def _at(self, path: str, value: Any) -> Any:
        distribution = self._space.distributions.get(path)
        if isinstance(distribution, FloatDistribution) and distribution.step is not None:
            return round((value - distribution.low) / distribution.step)
        return value
