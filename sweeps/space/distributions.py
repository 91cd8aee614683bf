"""The search space: distributions over dotted config paths, and how they are sampled with Optuna.

Bounds are inclusive everywhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from sweeps.config.space import (
    CategoricalDistribution,
    ConstantDistribution,
    Distribution,
    FloatDistribution,
    IntDistribution,
    OrdinalDistribution,
)
from sweeps.errors import ConfigError
from sweeps.space.suggester import Suggester
from sweeps.texts.suggestions import did_you_mean

MAX_GRID_POINTS = 100_000

Point = Mapping[str, Any]
"""A point of a space: values by dotted path, without parameters whose conditions do not hold."""

Lookup = Callable[[str], Any]
"""Returns the config's own value at a path, for conditions on paths that are not searched."""


class Space:
    """Distributions by path, in an order in which each parameter comes after those that its condition names.

    Example:
        >>> from sweeps.config.space import FloatDistribution
        >>> from sweeps.space.distributions import Space
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
        """Distribution of each path, in that order."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.distributions)

    def __len__(self) -> int:
        return len(self.distributions)

    def __getitem__(self, path: str) -> Distribution:
        return self.distributions[path]

    def active(self, path: str, point: Mapping[str, Any], lookup: Lookup) -> bool:
        """Whether the parameter exists at a point; the point must have all parameters that its condition names."""
        for other, wanted in self.distributions[path].when.items():
            if other in self.distributions and other not in point:
                return False  # the other parameter does not exist
            value = point[other] if other in point else lookup(other)
            if not satisfies(value, wanted):
                return False
        return True

    def sample(self, trial: Suggester, lookup: Lookup) -> dict[str, Any]:
        """Sample a point, one parameter after another (define-by-run).

        Args:
            trial: Makes the suggestions.
            lookup: Returns the config's own value at a path.

        Returns:
            The point.
        """
        point: dict[str, Any] = {}
        for path, distribution in self.distributions.items():
            if self.active(path, point, lookup):
                point[path] = _suggest(trial, path, distribution)
        return point

    def grid(self, lookup: Lookup) -> list[dict[str, Any]]:
        """Every point of a discrete space, once.

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
        """The config's own values as a point; None if some are outside of the space (``outside`` says which)."""
        point, outside = self._default(lookup)
        return None if outside else point

    def outside(self, lookup: Lookup) -> dict[str, Any]:
        """The config's own values that lie outside of the space, by path."""
        return self._default(lookup)[1]

    def _default(self, lookup: Lookup) -> tuple[dict[str, Any], dict[str, Any]]:
        point: dict[str, Any] = {}
        outside: dict[str, Any] = {}
        for path, distribution in self.distributions.items():
            if not self.active(path, {**point, **outside}, lookup):
                continue
            value = distribution.value if isinstance(distribution, ConstantDistribution) else lookup(path)
            if contains(distribution, value):
                point[path] = as_sampled(distribution, value)
            else:
                outside[path] = value
        return point, outside

    def encode(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Encode a point for ``optuna.Study.enqueue_trial``."""
        encoded: dict[str, Any] = {}
        for path, value in point.items():
            match self.distributions.get(path):
                case OrdinalDistribution(choices=choices):
                    encoded[path] = index_of(choices, value)
                case ConstantDistribution():
                    continue
                case None | CategoricalDistribution():
                    encoded[path] = encode(value)
                case distribution:
                    encoded[path] = as_sampled(distribution, value)
        return encoded

    def corners(self, lookup: Lookup) -> Iterator[tuple[str, Any, dict[str, Any]]]:
        """Both bounds of every range and every choice, each with a point that includes it: (path, value, point)."""
        for path, distribution in self.distributions.items():
            context = self.context(path, lookup)
            if context is not None:
                for value in boundary_values(distribution):
                    yield path, value, {**context, path: value}

    def context(self, path: str, lookup: Lookup) -> dict[str, Any] | None:
        """Values of other searched parameters under which this parameter is active; None if it never is."""
        wanted: dict[str, list[Any]] = {}  # all conditions, also those of the parameters that they name, must hold
        above = [path]
        for each in above:
            for other, values in self.distributions[each].when.items():
                if other in self.distributions and other not in above:
                    above.append(other)
                both = wanted.get(other, allowed_values(values))
                wanted[other] = [value for value in both if satisfies(value, values)]
        context: dict[str, Any] = {}
        for other, values in wanted.items():
            if other in self.distributions:
                possible = [value for value in values if contains(self.distributions[other], value)]
                if not possible:
                    return None
                context[other] = possible[0]
            elif not satisfies(lookup(other), values):
                return None
        return context


def allowed_values(wanted: Any) -> list[Any]:
    """Values that a condition allows, as a list; a single value may be written without brackets."""
    return wanted if isinstance(wanted, list) else [wanted]


def satisfies(value: Any, wanted: Any) -> bool:
    """Whether a value is one that a condition allows."""
    return any(_same(value, each) for each in allowed_values(wanted))


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


def _suggest(trial: Suggester, path: str, distribution: Distribution) -> Any:
    """Sample one parameter; Optuna's bounds are inclusive too."""
    match distribution:
        case FloatDistribution(low=low, high=high, log=log, step=step):
            value = trial.suggest_float(path, low, _last_step(low, high, step), log=log, step=step)
            return value if step is None else _at_step(low, step, round((value - low) / step))
        case IntDistribution(low=low, high=high, log=log, step=step):
            return trial.suggest_int(path, low, low + (high - low) // step * step, log=log, step=step)
        case CategoricalDistribution(choices=choices):
            return decode(distribution, trial.suggest_categorical(path, [encode(choice) for choice in choices]))
        case OrdinalDistribution(choices=choices):  # the sampler sees indices, so that neighbours are near
            return decode(distribution, trial.suggest_int(path, 0, len(choices) - 1))
        case ConstantDistribution(value=value):
            return value


def _at_step(low: float, step: float, index: int) -> float:
    """The value at a step, computed in decimals as Optuna does: 0.1 + 2 * 0.1 is 0.3."""
    return float(Decimal(str(low)) + index * Decimal(str(step)))


def _num_steps(low: float, high: float, step: float) -> int:
    return int((Decimal(str(high)) - Decimal(str(low))) // Decimal(str(step)))


def _last_step(low: float, high: float, step: float | None) -> float:
    """The last value at a step up to ``high``. Optuna uses it too, but warns if it is not ``high``."""
    return high if step is None else _at_step(low, step, _num_steps(low, high, step))


def encode(choice: Any) -> bool | int | float | str | None:
    """A choice as Optuna stores it: lists and mappings as JSON."""
    return choice if choice is None or isinstance(choice, bool | int | float | str) else json.dumps(choice)


def decode(distribution: Distribution, stored: Any) -> Any:
    """A value of a distribution, as Optuna stores it: a choice from its encoding, an ordered choice from its index."""
    match distribution:
        case CategoricalDistribution(choices=choices):
            return next(choice for choice in choices if _same(encode(choice), stored))
        case OrdinalDistribution(choices=choices):
            return choices[int(stored)]
    return stored


def index_of(choices: Sequence[Any], value: Any) -> int | None:
    """Index of a value among choices; None if it is not one of them. ``True`` is not 1."""
    return next((index for index, choice in enumerate(choices) if _same(choice, value)), None)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal and both or neither are a bool."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def contains(distribution: Distribution, value: Any) -> bool:
    """Whether a value can be sampled."""
    match distribution:
        case CategoricalDistribution(choices=choices) | OrdinalDistribution(choices=choices):
            return index_of(choices, value) is not None
        case ConstantDistribution(value=constant):
            return _same(constant, value)
        case IntDistribution(low=low, high=high, step=step):
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                return False
            return (value - low) % step == 0
        case FloatDistribution(low=low, high=high, step=step):
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                return False
            return step is None or math.isclose((value - low) / step, round((value - low) / step), abs_tol=1e-6)


def as_sampled(distribution: Distribution, value: Any) -> Any:
    """A value of the distribution, converted to the type that sampling gives: 3.0 of an integer distribution
    becomes 3."""
    match distribution:
        case IntDistribution():
            return int(value)
        case FloatDistribution():
            return float(value)
    return value


def boundary_values(distribution: Distribution) -> list[Any]:
    """Every choice, or the first and the last value that can be sampled, which may lie below ``high`` because of the
    step."""
    ends: list[Any]
    match distribution:
        case CategoricalDistribution(choices=choices) | OrdinalDistribution(choices=choices):
            return list(choices)
        case ConstantDistribution(value=value):
            return [value]
        case IntDistribution(low=low, high=high, step=step):
            ends = [low, low + (high - low) // step * step]
        case FloatDistribution(low=low, high=high, step=step):
            ends = [low, _last_step(low, high, step)]
    return ends[:1] if ends[0] == ends[1] else ends


def grid_values(path: str, distribution: Distribution) -> Sequence[Any]:
    """Every value of a discrete distribution, in order."""
    match distribution:
        case CategoricalDistribution(choices=choices) | OrdinalDistribution(choices=choices):
            return list(choices)
        case ConstantDistribution(value=value):
            return [value]
        case IntDistribution(low=low, high=high, step=step):
            return range(low, high + 1, step)
        case FloatDistribution(low=low, high=high, step=step, log=log):
            if step is not None:
                count = _num_steps(low, high, step) + 1
                if count > MAX_GRID_POINTS:
                    raise ConfigError(f"space.{path}: step={step} makes {count:,} values of a grid; give a larger step")
                return [_at_step(low, step, index) for index in range(count)]
            needed = "a list of choices" if log else f"a step between low={low} and high={high}, or a list of choices"
            raise ConfigError(f"space.{path}: a grid needs {needed}; for example {_as_grid(path, distribution)}")


def _as_grid(path: str, distribution: FloatDistribution) -> str:
    """Text with overrides that make a range finite."""
    low, high = distribution.low, distribution.high
    step = f"'space.{path}.step={(high - low) / 4:g}'"
    if not distribution.log:  # of which steps would not be even
        return step
    if distribution.when:  # which a new distribution would not have
        return f"'space.{path}.log=false' {step}"
    choices = (low * (high / low) ** (part / 3) for part in range(4))
    return f"'{path}=choice({', '.join(f'{each:.3g}' for each in choices)})'"


def check_point(space: Space, point: Mapping[str, Any], name: str, lookup: Lookup) -> None:
    """Check a point that a person gave.

    Args:
        space: The space.
        point: The point; values may be missing.
        name: Config key of the point, for messages.
        lookup: Returns the config's own value at a path.

    Raises:
        ConfigError: A path is not searched, a value is outside of its range, or a parameter does not exist at the
            point.
    """
    for path, value in point.items():
        if path not in space.distributions:
            raise ConfigError(f"{name}.{path}={value!r}: the space has no such path{did_you_mean(path, space)}")
        if not contains(space[path], value):
            raise ConfigError(f"{name}.{path}={value!r}: {expected(space[path], value)}, as in the space")
        for other, wanted in space[path].when.items():
            if other in space.distributions and other not in point:
                continue  # the other value will be sampled
            has = point[other] if other in point else lookup(other)
            if not satisfies(has, wanted):
                raise ConfigError(
                    f"{name}.{path}={value!r}: exists only while {other} is {_listed(allowed_values(wanted))}, and "
                    f"it is {has!r}; drop one of them"
                )


def describe(distribution: Distribution) -> str:
    """Text on the allowed values, such as ``a whole number between 1 and 9 in steps of 2``."""
    match distribution:
        case CategoricalDistribution(choices=choices) | OrdinalDistribution(choices=choices):
            return _listed(choices)
        case ConstantDistribution(value=value):
            return repr(value)
    kind = "a whole number between" if isinstance(distribution, IntDistribution) else "between"
    low, last = boundary_values(distribution)[0], boundary_values(distribution)[-1]
    steps = f" in steps of {distribution.step:g}" if distribution.step not in (None, 1) else ""
    return f"{kind} {low} and {last}{steps}"


def expected(distribution: Distribution, value: Any) -> str:
    """Text on why a value cannot be sampled, such as ``must be between 0 and 1``."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number or not isinstance(distribution, FloatDistribution | IntDistribution):
        return f"must be {describe(distribution)}"
    kind = "text; without quotes it" if isinstance(value, str) else f"{type(value).__name__}; it"
    number = (
        describe(distribution) if isinstance(distribution, IntDistribution) else f"a number {describe(distribution)}"
    )
    return f"is a {kind} must be {number}"


def _listed(values: Sequence[Any]) -> str:
    return repr(values[0]) if len(values) == 1 else f"one of {', '.join(map(repr, values))}"
