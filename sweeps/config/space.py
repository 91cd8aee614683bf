"""Schema of a search space: one distribution for each path."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config import STRICT, PositiveFloat, PositiveInt

Whole = Annotated[int, Field(gt=-(2**63), lt=2**63)]
Finite = Annotated[float, Field(allow_inf_nan=False)]

Condition = dict[str, Any]
"""Values, or lists of values, of other parameters under which a parameter is active, by dotted path. All paths must
match; the path of an inactive parameter does not match. If a value is itself a list, write a list of lists."""


@dataclass(config=STRICT, kw_only=True)
class Prior:
    """Prior belief about the best value, before any trial."""

    value: Any
    """Expected best value; must be in the parameter's range."""
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Confidence in the value, from 0 to 1: how often early suggestions are near it, and how near. Decreases with the
    number of trials, so that a wrong value costs only a few trials."""


@dataclass(config=STRICT, kw_only=True)
class FloatDistribution:
    """Real number between ``low`` and ``high``, both included."""

    type: Literal["float"]
    """Name of this kind of distribution."""
    low: Finite
    """Smallest value."""
    high: Finite
    """Largest value."""
    log: bool = False
    """Whether to sample the logarithm uniformly, for values that vary over orders of magnitude."""
    step: PositiveFloat | None = None
    """Step between values: low, low + step, low + 2 step, ..."""
    when: Condition = Field(default_factory=dict)
    """Conditions under which the parameter is active."""
    prior: Prior | None = None
    """Prior belief about the best value."""

    def __post_init__(self) -> None:
        _check_bounds(self)


@dataclass(config=STRICT, kw_only=True)
class IntDistribution:
    """Integer between ``low`` and ``high``, both included."""

    type: Literal["int"]
    """Name of this kind of distribution."""
    low: Whole
    """Smallest value."""
    high: Whole
    """Largest value."""
    log: bool = False
    """Whether to sample the logarithm uniformly."""
    step: PositiveInt = 1
    """Step between values: low, low + step, low + 2 step, ..."""
    when: Condition = Field(default_factory=dict)
    """Conditions under which the parameter is active."""
    prior: Prior | None = None
    """Prior belief about the best value."""

    def __post_init__(self) -> None:
        _check_bounds(self)


@dataclass(config=STRICT, kw_only=True)
class CategoricalDistribution:
    """One of ``choices``, which may be lists or mappings, or names of a group's options."""

    type: Literal["categorical"]
    """Name of this kind of distribution."""
    choices: Annotated[list[Any], Field(min_length=1)]
    """Values to choose from."""
    when: Condition = Field(default_factory=dict)
    """Conditions under which the parameter is active."""
    prior: Prior | None = None
    """Prior belief about the best value."""

    def __post_init__(self) -> None:
        _check_choices(self.choices)


@dataclass(config=STRICT, kw_only=True)
class OrdinalDistribution:
    """One of ``choices`` with a meaningful order (small, medium, large); neighbours are assumed to be similar."""

    type: Literal["ordinal"]
    """Name of this kind of distribution."""
    choices: Annotated[list[Any], Field(min_length=1)]
    """Values to choose from."""
    when: Condition = Field(default_factory=dict)
    """Conditions under which the parameter is active."""
    prior: Prior | None = None
    """Prior belief about the best value."""

    def __post_init__(self) -> None:
        _check_choices(self.choices)


@dataclass(config=STRICT, kw_only=True)
class ConstantDistribution:
    """One value for all trials in which ``when`` holds, in place of the config's; recorded like a searched one."""

    type: Literal["constant"]
    """Name of this kind of distribution."""
    value: Any
    """The value."""
    when: Condition = Field(default_factory=dict)
    """Conditions under which the parameter has the value."""

    def __post_init__(self) -> None:
        if _has_nan(self.value):
            raise ValueError(f"value is {_NAN}")


Distribution = Annotated[
    FloatDistribution | IntDistribution | CategoricalDistribution | OrdinalDistribution | ConstantDistribution,
    Field(discriminator="type"),
]


_NAN = (
    "nan, which equals no value, not even itself, so that a trial with it could not be found again; write null or text"
)


def _has_nan(value: Any) -> bool:
    """Whether a value is NaN, or a list or mapping with one in it."""
    match value:
        case list():
            return any(map(_has_nan, value))
        case dict():
            return any(map(_has_nan, value.values()))
    return isinstance(value, float) and math.isnan(value)


def _check_bounds(distribution: FloatDistribution | IntDistribution) -> None:
    low, high, step = distribution.low, distribution.high, distribution.step
    if low > high:
        raise ValueError(f"low={low} is above high={high}; swap them")
    if not math.isfinite(high - low):
        raise ValueError(f"low={low} and high={high} are further apart than the largest number; narrow the range")
    if distribution.log and low <= 0:
        raise ValueError(f"low={low} has no logarithm; use a positive low, or log: false")
    if distribution.log and step != type(distribution).step:  # without a step, an integer's is 1 and a float's null
        raise ValueError(f"log and step={step} exclude each other; remove one")


def _check_choices(choices: list[Any]) -> None:
    if _has_nan(choices):
        raise ValueError(f"choices has {_NAN}")
    for index, choice in enumerate(choices):
        for other in choices[:index]:
            if choice == other and type(choice) is not type(other):  # True == 1 == 1.0, to Optuna as well
                raise ValueError(
                    f"choices has {other!r} and {choice!r}, which are equal; keep one, or make one a string"
                )
            if choice == other:
                raise ValueError(f"choices has {choice!r} twice; name each choice once")
