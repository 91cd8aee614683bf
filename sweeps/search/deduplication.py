"""Points that are not trained again, and the remaining points of a finite space."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sweeps.config.space import FloatDistribution
from sweeps.errors import ConfigError
from sweeps.space.space import Lookup, Point, Space
from sweeps.space.suggester import RandomDraws

RANDOM_DRAWS = 10_000
"""Maximum number of random points of an infinite space that are tried for a next one. The checks of a sweep accept a
space of which one point in 1,000 is valid."""


class KnownPoints:
    """Points that must not be trained again. Floats with a step are equal if they are at the same step; other values
    are compared exactly."""

    def __init__(self, space: Space, lookup: Lookup, order: Sequence[Point] | None = None):
        """
        Args:
            space: Space of the points.
            lookup: Returns the config's own value at a path, for conditions on paths that are not searched.
            order: All points, in the order in which to suggest them (a grid); default: those of the space.
        """
        self._space = space
        self._lookup = lookup
        self._known: dict[str, str] = {}
        self._left = None if order is None else {self._key(point): dict(point) for point in order}
        self._is_infinite = False

    def add(self, point: Point, why: str) -> None:
        """Add a point that is not to be trained again, with the reason."""
        key = self._key(point)
        self._known.setdefault(key, why)
        if self._left is not None:
            self._left.pop(key, None)

    def why(self, point: Point) -> str | None:
        """Return the reason not to train a point again; None if there is none."""
        return self._known.get(self._key(point))

    @property
    def exhausted(self) -> bool:
        """Whether all points of a finite space are known. False until ``unknown`` has listed the points."""
        return self._left is not None and not self._left

    def unknown(self, seed: int | None, invalid: Callable[[Point], str | None]) -> Iterator[dict[str, Any]]:
        """Yield the valid points that are not known yet; for an infinite space, from a limited number of random draws.
        Invalid points of a finite space become known.

        Args:
            seed: Seed of their random order; None: the order in which they are listed.
            invalid: Returns why a point cannot be trained; None if it can.
        """
        for point in self._ordered(seed):
            if self.why(point) is None:
                reason = invalid(point)
                if reason is None:
                    yield point
                elif self._left is not None:
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
        """Return the unknown points of a finite space, in order; None if there are too many to list."""
        if self._left is None and not self._is_infinite:
            try:
                points = self._space.grid(self._lookup)
            except ConfigError:
                self._is_infinite = True
            else:
                keys = ((self._key(point), point) for point in points)
                self._left = {key: point for key, point in keys if key not in self._known}
        return self._left

    def _key(self, point: Point) -> str:
        values = {path: self._comparable(path, value) for path, value in point.items()}
        return json.dumps(values, sort_keys=True, default=str)

    def _comparable(self, path: str, value: Any) -> Any:
        distribution = self._space.distributions.get(path)
        if isinstance(distribution, FloatDistribution) and distribution.step is not None:
            return round((value - distribution.low) / distribution.step)
        return value
