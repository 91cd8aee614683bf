"""Values of a single distribution: enumeration, Optuna's encoding, and descriptions for messages.

Bounds are inclusive everywhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from importlib import import_module
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

MAX_GRID_POINTS = 100_000


def allowed_values(wanted: Any) -> list[Any]:
    """Return the values that a condition allows, as a list; a single value may be written without brackets."""
    return wanted if isinstance(wanted, list) else [wanted]


def satisfies(value: Any, wanted: Any) -> bool:
    """Whether a condition allows a value."""
    return any(_same(value, each) for each in allowed_values(wanted))


def suggest(trial: Suggester, path: str, distribution: Distribution) -> Any:
    """Sample one parameter; bounds are inclusive, as in Optuna."""
    match distribution:
        case FloatDistribution(low=low, high=high, log=log, step=step):
            value = trial.suggest_float(path, low, _last_step(low, high, step), log=log, step=step)
            return decode(distribution, value)
        case IntDistribution(low=low, high=high, log=log, step=step):
            return trial.suggest_int(path, low, low + (high - low) // step * step, log=log, step=step)
        case CategoricalDistribution(choices=choices):
            return decode(distribution, trial.suggest_categorical(path, [encode(choice) for choice in choices]))
        case OrdinalDistribution(choices=choices):  # the sampler sees indices, so that neighbours are near
            return decode(distribution, trial.suggest_int(path, 0, len(choices) - 1))
        case ConstantDistribution(value=value):
            return value


def _at_step(low: float, step: float, index: int) -> float:
    """Return the value at a step, computed in decimals as Optuna does: 0.1 + 2 * 0.1 is 0.3."""
    return float(Decimal(str(low)) + index * Decimal(str(step)))


def _num_steps(low: float, high: float, step: float) -> int:
    """Return the number of steps up to ``high``, which may lie below the last one by rounding, as 0.7 + 0.1 does."""
    return int((Decimal(str(high)) - Decimal(str(low))) / Decimal(str(step)) + Decimal("1e-9"))


def _last_step(low: float, high: float, step: float | None) -> float:
    """Return the last value at a step up to ``high``. Optuna also uses it, but warns if it is not ``high``."""
    return high if step is None else _at_step(low, step, _num_steps(low, high, step))


def encode(choice: Any) -> bool | int | float | str | None:
    """Encode a choice for Optuna: lists and mappings as JSON."""
    return choice if choice is None or isinstance(choice, bool | int | float | str) else json.dumps(choice)


def decode(distribution: Distribution, stored: Any) -> Any:
    """Decode a value that Optuna stores: a choice from its encoding, an ordered choice from its index, and a float from
    one that may differ in its last digit from the exact value of its step."""
    match distribution:
        case FloatDistribution(low=low, step=step) if step is not None:
            return _at_step(low, step, round((stored - low) / step))
        case CategoricalDistribution(choices=choices):
            return next(choice for choice in choices if _same(encode(choice), stored))
        case OrdinalDistribution(choices=choices):
            return choices[int(stored)]
    return stored


def ordered_choices(distributions: Mapping[str, Distribution]) -> dict[str, list[Any]]:
    """Return the choices of each ordinal parameter, of which Optuna stores the index."""
    return {path: each.choices for path, each in distributions.items() if isinstance(each, OrdinalDistribution)}


def index_of(choices: Sequence[Any], value: Any) -> int | None:
    """Return the index of a value among choices; None if it is not one of them. ``True`` is not 1."""
    return next((index for index, choice in enumerate(choices) if _same(choice, value)), None)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal, and both or neither of them are booleans."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def is_number(value: Any) -> bool:
    """Whether a value is a number; a truth value is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def contains(distribution: Distribution, value: Any) -> bool:
    """Whether a distribution can sample a value."""
    match distribution:
        case CategoricalDistribution(choices=choices) | OrdinalDistribution(choices=choices):
            return index_of(choices, value) is not None
        case ConstantDistribution(value=constant):
            return _same(constant, value)
        case IntDistribution(low=low, high=high, step=step):
            return is_number(value) and low <= value <= high and bool((value - low) % step == 0)
        case FloatDistribution(low=low, high=high, step=step):
            if not is_number(value):
                return False
            return low <= value <= high if step is None else _step_of(low, high, step, value) is not None


def _step_of(low: float, high: float, step: float, value: float) -> int | None:
    """Return the number of steps from ``low`` to a value, up to rounding; None if the value is at no step of the range.
    A value that another program computed may lie beyond an end: in floats, 0.1 + 2 * 0.1 is above 0.3."""
    if not low - step < value < high + step:
        return None
    steps = (value - low) / step
    is_step = math.isclose(steps, round(steps), abs_tol=1e-6) and 0 <= round(steps) <= _num_steps(low, high, step)
    return round(steps) if is_step else None


def as_sampled(distribution: Distribution, value: Any) -> Any:
    """Convert a value to the form in which the distribution samples it: 3.0 becomes 3 for integers, a float becomes the
    exact value of its step, and a choice becomes the equal one of the distribution ([1] for [1.0])."""
    match distribution:
        case IntDistribution():
            return int(value)
        case FloatDistribution(low=low, high=high, step=step):
            index = None if step is None else _step_of(low, high, step, value)
            return float(value) if step is None or index is None else _at_step(low, step, index)
        case CategoricalDistribution(choices=choices) | OrdinalDistribution(choices=choices):
            index = index_of(choices, value)
            return value if index is None else choices[index]
    return value


def nearest(distribution: FloatDistribution | IntDistribution, number: float) -> Any:
    """Return the value of a range that is nearest to a number, as it is sampled."""
    low, step, ends = distribution.low, distribution.step, boundary_values(distribution)
    value = min(max(number, ends[0]), ends[-1])
    return as_sampled(distribution, value if step is None else low + round((value - low) / step) * step)


def boundary_values(distribution: Distribution) -> list[Any]:
    """Return every choice, or the first and the last value that can be sampled, which may lie below ``high`` because of
    the step."""
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
    """Return every value of a discrete distribution, in order.

    Raises:
        ConfigError: The distribution has no step, or too many values to list.
    """
    match distribution:
        case CategoricalDistribution(choices=choices) | OrdinalDistribution(choices=choices):
            return list(choices)
        case ConstantDistribution(value=value):
            return [value]
        case IntDistribution(low=low, high=high, step=step):
            _check_count(path, step, (high - low) // step + 1)
            return range(low, high + 1, step)
        case FloatDistribution(low=low, high=high, step=step, log=log):
            if step is not None:
                count = _num_steps(low, high, step) + 1
                _check_count(path, step, count)
                return [_at_step(low, step, index) for index in range(count)]
            if low == high:
                return [low]
            needed = "a list of choices" if log else f"a step between low={low} and high={high}, or a list of choices"
            raise ConfigError(f"space.{path}: a grid needs {needed}; for example {_as_grid(path, distribution)}")


def _check_count(path: str, step: float, count: int) -> None:
    if count > MAX_GRID_POINTS:
        raise ConfigError(
            f"space.{path}: step={step} makes {count:,} values of a grid; give a larger step, or a list of choices"
        )


def _as_grid(path: str, distribution: FloatDistribution) -> str:
    """Return a string with overrides that make a range finite."""
    low, high = distribution.low, distribution.high
    step = f"'space.{path}.step={(high - low) / 4:g}'"
    if not distribution.log:  # even steps do not suit a logarithmic scale
        return step
    if distribution.when:  # a new distribution would lose its conditions
        return f"'space.{path}.log=false' {step}"
    choices = (low * (high / low) ** (part / 3) for part in range(4))
    return f"'{path}=choice({', '.join(f'{each:.3g}' for each in choices)})'"


def describe(distribution: Distribution) -> str:
    """Describe the allowed values, such as ``a whole number between 1 and 9 in steps of 2``."""
    match distribution:
        case CategoricalDistribution(choices=choices) | OrdinalDistribution(choices=choices):
            return listed(choices)
        case ConstantDistribution(value=value):
            return repr(value)
    kind = "a whole number between" if isinstance(distribution, IntDistribution) else "between"
    low, last = boundary_values(distribution)[0], boundary_values(distribution)[-1]
    has_steps = distribution.step != type(distribution).step
    steps = f" in steps of {distribution.step:g}" if has_steps else ""
    return f"{kind} {low} and {last}{steps}"


def expected(distribution: Distribution, value: Any) -> str:
    """Explain why a value cannot be sampled, such as ``must be between 0 and 1``."""
    if is_number(value) or not isinstance(distribution, FloatDistribution | IntDistribution):
        return f"must be {describe(distribution)}"
    kind = "text; without quotes it" if isinstance(value, str) else f"{type(value).__name__}; it"
    number = (
        describe(distribution) if isinstance(distribution, IntDistribution) else f"a number {describe(distribution)}"
    )
    return f"is a {kind} must be {number}"


def listed(values: Sequence[Any]) -> str:
    """Format values for a message: ``one of 1, 2``; a single value without ``one of``."""
    return repr(values[0]) if len(values) == 1 else f"one of {', '.join(map(repr, values))}"


def __getattr__(name: str) -> Any:
    if name in ("Space", "Point", "Lookup"):  # imported from here by code of users, as the documents said
        return getattr(import_module("sweeps.space.space"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
