"""The search space: distributions over dotted config paths, the conditions under which a parameter exists, and how
points are sampled with Optuna."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sweeps.config.space import ConstantDistribution, Distribution, OrdinalDistribution
from sweeps.errors import ConfigError
from sweeps.space.distributions import (
    MAX_GRID_POINTS,
    allowed_values,
    as_sampled,
    boundary_values,
    contains,
    encode,
    expected,
    grid_values,
    index_of,
    listed,
    satisfies,
    suggest,
)
from sweeps.space.suggester import Suggester
from sweeps.texts.suggestions import did_you_mean

Point = Mapping[str, Any]
"""A point of a space: values by dotted path, without parameters whose conditions do not hold."""

Lookup = Callable[[str], Any]
"""Returns the config's own value at a path, for conditions on paths that are not searched."""


class Space:
    """Distributions by path, in an order in which each parameter follows those that its condition names.

    Example:
        >>> from sweeps.config.space import FloatDistribution
        >>> from sweeps.space.space import Space
        >>> from sweeps.space.suggester import RandomDraws
        >>> space = Space({"lr": FloatDistribution(type="float", low=1e-4, high=1e-1, log=True)})
        >>> point = space.sample(RandomDraws(seed=0), lambda path: None)
        >>> list(point), 1e-4 <= point["lr"] <= 1e-1
        (['lr'], True)
    """

    def __init__(self, distributions: Mapping[str, Distribution]):
        """
        Args:
            distributions: Distributions by path, in any order.

        Raises:
            ConfigError: Conditions depend on each other in a circle.
        """
        self.distributions = {path: distributions[path] for path in _order(distributions)}
        """Distribution of each path, in the order in which values are chosen."""
        self.replaced_corners: list[tuple[Point, Point | None]] = []
        """Corners that the constraints exclude, each with an allowed point that has the same value (None if there is
        none). The checks of a sweep fill the list, for later uses of the corners."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.distributions)

    def __len__(self) -> int:
        return len(self.distributions)

    def __getitem__(self, path: str) -> Distribution:
        return self.distributions[path]

    def active(self, path: str, point: Mapping[str, Any], lookup: Lookup) -> bool:
        """Whether a parameter exists at a point. The point must have all parameters that the condition names."""
        for other, wanted in self.distributions[path].when.items():
            if other in self.distributions and other not in point:
                return False  # the other parameter does not exist
            value = point[other] if other in point else lookup(other)
            if not satisfies(value, wanted):
                return False
        return True

    def sample(self, trial: Suggester, lookup: Lookup, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Sample a point, one parameter after another (define-by-run).

        Args:
            trial: Suggests the values.
            lookup: Returns the config's own value at a path.
            given: Values that are not sampled.

        Returns:
            The point.
        """
        point: dict[str, Any] = {}
        for path, distribution in self.distributions.items():
            if self.active(path, point, lookup):
                point[path] = given[path] if given and path in given else suggest(trial, path, distribution)
        return point

    def grid(self, lookup: Lookup) -> list[dict[str, Any]]:
        """Return every point of a discrete space, once.

        Args:
            lookup: Returns the config's own value at a path.

        Raises:
            ConfigError: A real-valued parameter has no step, or the points are too many to list.
        """
        points: list[dict[str, Any]] = [{}]
        for path, distribution in self.distributions.items():
            if not any(self.active(path, point, lookup) for point in points):
                continue  # it never exists, so it need not be discrete
            values = grid_values(path, distribution)
            if len(points) * len(values) > MAX_GRID_POINTS:
                raise ConfigError(
                    f"space.{path}: with it the grid has more than {MAX_GRID_POINTS:,} points; give larger steps, "
                    "search less, or use search/sampler=random"
                )
            grown: list[dict[str, Any]] = []
            for point in points:
                if self.active(path, point, lookup):
                    grown.extend({**point, path: value} for value in values)
                else:
                    grown.append(point)
            points = grown
        return points

    def default_point(self, lookup: Lookup) -> dict[str, Any] | None:
        """Return the config's own values as a point; None if some are outside of the space (``outside`` lists them)."""
        point, outside = self._default(lookup)
        return None if outside else point

    def outside(self, lookup: Lookup) -> dict[str, Any]:
        """Return the config's own values that lie outside of the space, by path."""
        return self._default(lookup)[1]

    def _default(self, lookup: Lookup) -> tuple[dict[str, Any], dict[str, Any]]:
        def own(path: str) -> Any:
            distribution = self[path]
            return distribution.value if isinstance(distribution, ConstantDistribution) else lookup(path)

        return point_of(self, own, lookup)

    def encode(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Encode a point for ``optuna.Study.enqueue_trial``."""
        encoded: dict[str, Any] = {}
        for path, value in point.items():
            match self.distributions.get(path):
                case OrdinalDistribution(choices=choices):
                    encoded[path] = index_of(choices, value)
                case ConstantDistribution():
                    continue
                case None:
                    encoded[path] = encode(value)
                case distribution:
                    encoded[path] = encode(as_sampled(distribution, value))
        return encoded

    def corners(self, lookup: Lookup) -> Iterator[tuple[str, Any, dict[str, Any]]]:
        """Yield both bounds of every range and every choice, each with a point that includes it: (path, value,
        point)."""
        for path, distribution in self.distributions.items():
            context = self.context(path, lookup)
            if context is not None:
                for value in boundary_values(distribution):
                    corner: Point | None = {**context, path: value}
                    corner = next((point for replaced, point in self.replaced_corners if replaced == corner), corner)
                    if corner is not None:
                        yield path, value, dict(corner)

    def context(self, path: str, lookup: Lookup) -> dict[str, Any] | None:
        """Return values of other searched parameters under which a parameter is active; None if it never is."""
        return common_context(self, [path], lookup)


def _order(distributions: Mapping[str, Distribution]) -> list[str]:
    ordered: list[str] = []
    waiting = list(distributions)
    while waiting:
        ready = [path for path in waiting if not any(other in waiting for other in distributions[path].when)]
        if not ready:
            raise ConfigError(
                f"space: the conditions of {', '.join(waiting)} depend on each other in a circle; remove one"
            )
        ordered.extend(ready)
        waiting = [path for path in waiting if path not in ready]
    return ordered


def point_of(space: Space, values: Lookup, lookup: Lookup) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the point of given values, as they are sampled, and the values that lie outside of the space, by path. The
    value of a parameter that does not exist is not asked for."""
    point: dict[str, Any] = {}
    outside: dict[str, Any] = {}
    for path, distribution in space.distributions.items():
        if not space.active(path, {**point, **outside}, lookup):
            continue
        value = values(path)
        if contains(distribution, value):
            point[path] = as_sampled(distribution, value)
        else:
            outside[path] = value
    return point, outside


def common_context(space: Space, paths: Sequence[str], lookup: Lookup, number: int = 0) -> dict[str, Any] | None:
    """Return values of other searched parameters with which all parameters in ``paths`` are active, or None if there
    are none. Each ``number`` gives other values, as long as there are others."""
    wanted: dict[str, list[Any]] = {}  # all conditions, also those of the parameters that they name, must hold
    above = list(paths)
    for each in above:
        for other, values in space.distributions[each].when.items():
            if other in space.distributions and other not in above:
                above.append(other)
            both = wanted.get(other, allowed_values(values))
            wanted[other] = [value for value in both if satisfies(value, values)]
    context: dict[str, Any] = {}
    for other, values in wanted.items():
        if other in paths:
            continue
        if other in space.distributions:
            possible = [value for value in values if contains(space.distributions[other], value)]
            if not possible:
                return None
            number, index = divmod(number, len(possible))
            context[other] = possible[index]
        elif not satisfies(lookup(other), values):
            return None
    return context


def check_point(space: Space, point: Mapping[str, Any], name: str, lookup: Lookup) -> None:
    """Check a user's point, which need not have all values; its config key is for messages.

    Raises:
        ConfigError: A path is not searched, a value is outside of its range, or a parameter does not exist at the
            point.
    """
    for path, value in point.items():
        if path not in space.distributions:
            raise ConfigError(f"{name}.{path}={value!r}: the space has no such path{did_you_mean(path, space)}")
        if not contains(space[path], value):
            raise ConfigError(f"{name}.{path}={value!r}: {expected(space[path], value)}, as in the space")
        conditions = [*space[path].when.items()]
        for other, wanted in conditions:
            if other in space.distributions and other not in point:
                # the other value will be sampled, if it can exist
                conditions += [each for each in space[other].when.items() if each not in conditions]
                continue
            has = point[other] if other in point else lookup(other)
            if not satisfies(has, wanted):
                raise ConfigError(
                    f"{name}.{path}={value!r}: exists only while {other} is {listed(allowed_values(wanted))}, and "
                    f"it is {has!r}; drop one of them"
                )
