"""Initial points of a sweep: the config's own values, the user's points, and those of a grid."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sweeps.compose import Composition
from sweeps.errors import ConfigError, ConstraintViolated
from sweeps.space.constraints import ConstraintFailed, Constraints, key_of
from sweeps.space.distributions import describe, grid_values, satisfies
from sweeps.space.space import Lookup, Space, check_point
from sweeps.space.suggester import RandomDraws

NUM_DRAWS = 1000
"""Number of random points, at least one of which the constraints must allow."""
FEW_POINTS = 1000
"""Maximum number of points of a space for which the allowed ones are counted by listing all."""
NUM_DRAWS_OF_SHARE = 300
"""Number of random points to estimate the share of the space that the constraints allow."""


@dataclass(frozen=True)
class InitialPoints:
    """The points that a sweep tries before its sampler chooses."""

    composition: Composition
    space: Space
    constraints: Constraints
    lookup: Lookup

    def default(self) -> tuple[dict[str, Any] | None, str]:
        """Return the config's own values as a point; or None, with the reason why it is not tried."""
        outside = self.space.outside(self.lookup)
        if outside:
            absent = [path for path, value in outside.items() if value is None]
            others = [
                f"{path}={value!r} is not {describe(self.space[path])}"
                for path, value in outside.items()
                if value is not None
            ]
            return None, "; ".join([*others, *([f"the config has no {', '.join(absent)}"] if absent else [])])
        point = self.space.default_point(self.lookup)
        assert point is not None
        try:
            self.constraints.check(point)
        except ConstraintViolated as error:
            return None, str(error)
        return point, ""

    def first(self) -> list[dict[str, Any]]:
        """Return the default point, if it is wanted and allowed, and the user's points."""
        search = self.composition.config.search
        default = self.default()[0] if search.default_first else None
        return [*([] if default is None or default in search.points else [default]), *search.points]

    def grid(self) -> list[dict[str, Any]]:
        """Return every point of a discrete space that the constraints allow."""
        return [point for point in self.space.grid(self.lookup) if self.constraints.allows(point)]

    @cached_property
    def num_trials(self) -> int:
        """Number of trials that the sweep can start: ``search.num_trials``, or all points of a small space."""
        wanted = self.composition.config.search.num_trials
        return wanted if self.num_points is None else min(wanted, self.num_points)

    @cached_property
    def num_points(self) -> int | None:
        """Number of all points of a small space or grid, each of which is tried once; None for any other space."""
        search = self.composition.config.search
        if search.sampler.kind != "grid" and (search.duplicates or not self._is_small()):
            return None
        try:
            return len(self.grid())
        except ConfigError:  # reported as a mistake
            return None

    def _is_small(self) -> bool:
        """Whether the space is small enough to list and check all its points immediately."""
        try:
            return math.prod(len(grid_values(path, self.space[path])) for path in self.space) <= FEW_POINTS
        except ConfigError:  # infinitely many
            return False

    def share_allowed(self) -> float:
        """Estimate the share of random points that the constraints allow."""
        if not self.constraints.expressions:
            return 1.0
        draws = list(self._draws(NUM_DRAWS_OF_SHARE))
        return sum(map(self.constraints.allows, draws)) / len(draws)

    def _draws(self, count: int) -> Iterator[dict[str, Any]]:
        draws = RandomDraws(self.composition.config.seed)
        for _ in range(count if len(self.space) else 1):
            yield self.space.sample(draws, self.lookup)

    def allowed_with(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return a random point with these values that the constraints allow; None if many draws find none."""
        draws = RandomDraws(self.composition.config.seed)
        points = (self.space.sample(draws, self.lookup, given) for _ in range(NUM_DRAWS_OF_SHARE))
        return next(
            (point for point in points if given.items() <= point.items() and self.constraints.allows(point)), None
        )

    def mistakes(self) -> Iterator[str]:
        """Yield the mistakes in ``search.points`` and ``search.constraints``: one line each, with key, value and
        fix."""
        search = self.composition.config.search
        try:
            if self.constraints.expressions:
                yield from self._excluding_constraints()
        except ConfigError as error:
            yield str(error)
            return
        for index, point in enumerate(search.points):
            name = f"search.points.{index}"
            try:
                check_point(self.space, point, name, self.lookup)
                self.constraints.check(point, unknown=self._missing(point))
            except ConstraintViolated as error:
                yield f"{name}: {error}; change the point or the constraint"
            except ConfigError as error:
                yield str(error)
            if point in search.points[:index] and self.is_complete(point) and not search.duplicates:
                yield (
                    f"{name}: is the same as search.points.{search.points.index(point)}; drop one, or set "
                    "search.duplicates=true"
                )

    def notes(self) -> Iterator[str]:
        """Yield notes for the dry run on settings that are allowed but may be unintended."""
        search = self.composition.config.search
        if search.default_first and (why := self.default()[1]):
            yield f"the config's own values are not tried first: {why}"
        yield from self.constraints.perhaps_misspelt()
        share = self.share_allowed()
        if share < 1:
            about = f"about {share:.0%}" if share >= 0.01 else "less than 1%"
            yield f"search.constraints allow {about} of random points"
        first = len(self.first())
        if first > search.num_trials:
            yield f"search.num_trials={search.num_trials}: not all of the {first} points that come first are tried"
        if search.sampler.kind == "grid" and (count := len(self.grid())) > search.num_trials:
            yield f"search.num_trials={search.num_trials}: not all of the grid's {count:,} points are tried"

    def is_complete(self, point: Mapping[str, Any]) -> bool:
        """Whether a user's point has all its values, so that none will be sampled."""
        return not self._missing(point)

    def _missing(self, point: Mapping[str, Any]) -> frozenset[str]:
        """Return the searched paths that a user's point omits and that will be sampled."""
        absent: set[str] = set()
        for path in self.space:  # each parameter comes after those that its condition names
            for other, wanted in self.space[path].when.items():
                known = other in point or other not in self.space.distributions
                value = point[other] if other in point else self.lookup(other)
                if other in absent or (known and not satisfies(value, wanted)):
                    absent.add(path)
        return frozenset(self.space) - frozenset(point) - absent

    def _excluding_constraints(self) -> Iterator[str]:
        """Yield mistakes about constraints that none of many random points satisfies, or that cannot be computed at any
        of them."""
        failure: ConstraintFailed | None = None
        always_fails = True
        for point in self._draws(NUM_DRAWS):
            try:
                self.constraints.check(point)
            except ConstraintFailed as error:
                failure = failure or error
            except ConstraintViolated:
                always_fails = False
            else:
                return
        if not always_fails:
            yield self._nothing_allowed()
        if failure is not None:
            yield f"{failure}; correct the constraint"

    def _nothing_allowed(self) -> str:
        keys = [key_of(index, each.text) for index, each in enumerate(self.constraints.expressions)]
        subject = f"none of {NUM_DRAWS:,} random points satisfies" if len(self.space) else "the config does not satisfy"
        return f"{' and '.join(keys)}: {subject} {'it' if len(keys) == 1 else 'them'}; loosen it, or widen the space"
