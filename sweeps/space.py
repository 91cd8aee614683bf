"""The search space: dotted config paths and their distributions, and what they mean to Optuna.

The one place that knows bounds (both ends are included, everywhere) and conditions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweeps.config.space import (
    CategoricalDistribution,
    ConstantDistribution,
    Distribution,
    FloatDistribution,
    IntDistribution,
    OrdinalDistribution,
)
from sweeps.errors import ConfigError, nearest

if TYPE_CHECKING:
    import optuna

MAX_GRID_POINTS = 100_000

Lookup = Callable[[str], Any]
"""Gives the config's own value at a path, for conditions on what is not searched."""


class Space:
    """Paths and distributions, in an order in which every condition is decided before what depends on it."""

    def __init__(self, distributions: Mapping[str, Distribution]):
        """
        Raises:
            ConfigError: Conditions depend on each other in a circle.
        """
        self.distributions = {path: distributions[path] for path in _order(distributions)}

    def __iter__(self) -> Iterator[str]:
        return iter(self.distributions)

    def __len__(self) -> int:
        return len(self.distributions)

    def __getitem__(self, path: str) -> Distribution:
        return self.distributions[path]

    def active(self, path: str, point: Mapping[str, Any], lookup: Lookup) -> bool:
        """Whether the parameter exists at a point, of which everything it depends on is known."""
        for other, wanted in self.distributions[path].when.items():
            if other in self.distributions and other not in point:
                return False  # what it depends on does not exist itself
            value = point[other] if other in point else lookup(other)
            if value not in (wanted if isinstance(wanted, list) else [wanted]):
                return False
        return True

    def sample(self, trial: optuna.Trial, lookup: Lookup) -> dict[str, Any]:
        """A point, asked for one parameter after another (define-by-run).

        Args:
            trial: Makes the suggestions.
            lookup: The config's own values.

        Returns:
            Path -> value, only for the parameters that exist at this point.
        """
        point: dict[str, Any] = {}
        for path, distribution in self.distributions.items():
            if self.active(path, point, lookup):
                point[path] = _suggest(trial, path, distribution)
        return point

    def grid(self, lookup: Lookup) -> list[dict[str, Any]]:
        """Every point of a discrete space, once.

        Raises:
            ConfigError: A real-valued parameter has no step, or the points are too many to list.
        """
        points: list[dict[str, Any]] = [{}]
        for path, distribution in self.distributions.items():
            values = grid_values(path, distribution)
            if len(points) * len(values) > MAX_GRID_POINTS:
                raise ConfigError(
                    f"search.sampler.kind='grid': with space.{path} the grid has more than {MAX_GRID_POINTS:,} points; "
                    "widen its steps, search less, or use search=random"
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
        """The config's own values as a point, or None where they lie outside the space."""
        point: dict[str, Any] = {}
        for path, distribution in self.distributions.items():
            if not self.active(path, point, lookup):
                continue
            value = lookup(path)
            if not contains(distribution, value):
                return None
            point[path] = value
        return point

    def corners(self, lookup: Lookup) -> Iterator[tuple[str, Any, dict[str, Any]]]:
        """(path, value, point) for each end of every range and every choice, with what its conditions need set:
        if these make valid configs, bounds and types are right."""
        for path, distribution in self.distributions.items():
            context = self.context(path, lookup)
            if context is not None:
                for value in boundary_values(distribution):
                    yield path, value, {**context, path: value}

    def context(self, path: str, lookup: Lookup) -> dict[str, Any] | None:
        """Values of other searched parameters under which this one exists; None if it never does."""
        context: dict[str, Any] = {}
        for other, wanted in self.distributions[path].when.items():
            values = wanted if isinstance(wanted, list) else [wanted]
            if other in self.distributions:
                possible = [value for value in values if contains(self.distributions[other], value)]
                deeper = self.context(other, lookup)
                if not possible or deeper is None:
                    return None
                context |= {**deeper, other: possible[0]}
            elif lookup(other) not in values:
                return None
        return context


def _order(distributions: Mapping[str, Distribution]) -> list[str]:
    ordered: list[str] = []
    waiting = list(distributions)
    while waiting:
        ready = [
            path
            for path in waiting
            if not any(other in waiting for other in distributions[path].when if other != path)
            and path not in distributions[path].when
        ]
        if not ready:
            raise ConfigError(f"space: the conditions of {', '.join(waiting)} depend on each other; break the circle")
        ordered.extend(ready)
        waiting = [path for path in waiting if path not in ready]
    return ordered


def _suggest(trial: optuna.Trial, path: str, distribution: Distribution) -> Any:
    """Ask Optuna, whose bounds are inclusive too."""
    match distribution:
        case FloatDistribution(low=low, high=high, log=log, step=step):
            return trial.suggest_float(path, low, _last_step(low, high, step), log=log, step=step)
        case IntDistribution(low=low, high=high, log=log, step=step):
            return trial.suggest_int(path, low, low + (high - low) // step * step, log=log, step=step)
        case CategoricalDistribution(choices=choices):
            encoded = trial.suggest_categorical(path, [encode(choice) for choice in choices])
            return next(choice for choice in choices if _same(encode(choice), encoded))
        case OrdinalDistribution(choices=choices):  # to the sampler its positions, so that neighbours are near
            return choices[trial.suggest_int(path, 0, len(choices) - 1)]
        case ConstantDistribution(value=value):
            return value


def _last_step(low: float, high: float, step: float | None) -> float:
    """Optuna warns where ``high`` is no multiple of ``step`` away from ``low``, and then does this."""
    if step is None:
        return high
    return low + math.floor((high - low) / step + 1e-9) * step


def encode(choice: Any) -> bool | int | float | str | None:
    """A choice as Optuna stores it: lists and mappings as JSON."""
    return choice if choice is None or isinstance(choice, bool | int | float | str) else json.dumps(choice)


def _same(one: Any, other: Any) -> bool:
    """Equal, and not merely as ``True == 1``."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def contains(distribution: Distribution, value: Any) -> bool:
    """Whether a value can be sampled."""
    match distribution:
        case CategoricalDistribution(choices=choices) | OrdinalDistribution(choices=choices):
            return any(_same(choice, value) for choice in choices)
        case ConstantDistribution(value=constant):
            return _same(constant, value)
        case IntDistribution(low=low, high=high, step=step):
            return isinstance(value, int) and low <= value <= high and (value - low) % step == 0
        case FloatDistribution(low=low, high=high, step=step):
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                return False
            return step is None or math.isclose((value - low) / step, round((value - low) / step), abs_tol=1e-6)


def boundary_values(distribution: Distribution) -> list[Any]:
    match distribution:
        case CategoricalDistribution(choices=choices) | OrdinalDistribution(choices=choices):
            return list(choices)
        case ConstantDistribution(value=value):
            return [value]
    return [distribution.low] if distribution.low == distribution.high else [distribution.low, distribution.high]


def grid_values(path: str, distribution: Distribution) -> Sequence[Any]:
    """Every value of a discrete distribution, in order."""
    match distribution:
        case CategoricalDistribution(choices=choices) | OrdinalDistribution(choices=choices):
            return list(choices)
        case ConstantDistribution(value=value):
            return [value]
        case IntDistribution(low=low, high=high, step=step):
            return range(low, high + 1, step)
        case FloatDistribution(low=low, high=high, step=step):
            if step is not None:
                count = math.floor((high - low) / step + 1e-9) + 1
                if count > MAX_GRID_POINTS:
                    raise ConfigError(f"space.{path}: step={step} makes {count:,} values of a grid; widen it")
                return [low + index * step for index in range(count)]
            raise ConfigError(
                f"space.{path}: a grid needs a step between low={low} and high={high}, or a list of choices; "
                f"for example 'space.{path}.step={(high - low) / 4:g}'"
            )


def check_point(space: Space, point: Mapping[str, Any], name: str) -> None:
    """
    Raises:
        ConfigError: A point that a person gave has a path that is not searched, or a value outside its range.
    """
    for path, value in point.items():
        if path not in space.distributions:
            raise ConfigError(f"{name}.{path}={value!r}: the space has no such path{nearest(path, space)}")
        if not contains(space[path], value):
            allowed = boundary_values(space[path])
            between = "one of" if isinstance(space[path], CategoricalDistribution) else "between"
            raise ConfigError(f"{name}.{path}={value!r}: must be {between} {allowed}, as the space says")
