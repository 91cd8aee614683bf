"""The schema of a search space: one distribution a path."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config import STRICT, PositiveFloat, PositiveInt

Whole = Annotated[int, Field(gt=-(2**63), lt=2**63)]
Finite = Annotated[float, Field(allow_inf_nan=False)]

Condition = dict[str, Any]
"""Dotted path -> the value, or list of values, under which a parameter exists. Of several paths all must hold; one
that does not exist itself at a point does not hold. Where the value is a list itself, write a list of lists."""


@dataclass(config=STRICT, kw_only=True)
class Prior:
    """What a person believes to be a good value, before any trial."""

    value: Any
    """The guess; it must lie in the parameter's range."""
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """How sure one is, from 0 to 1: how often early suggestions stay near the guess, and how near. It fades with the
    trials done, so that a wrong guess costs a few trials and not the search."""


@dataclass(config=STRICT, kw_only=True)
class FloatDistribution:
    """A real number between ``low`` and ``high``, both included."""

    type: Literal["float"]
    low: Finite
    high: Finite
    log: bool = False
    """Sample the logarithm evenly: for values that matter by their order of magnitude."""
    step: PositiveFloat | None = None
    """Only low, low + step, low + 2 step, ..."""
    when: Condition = Field(default_factory=dict)
    """The parameter exists only while these hold."""
    prior: Prior | None = None
    """A guess, and how sure it is."""

    def __post_init__(self) -> None:
        _check_bounds(self)


@dataclass(config=STRICT, kw_only=True)
class IntDistribution:
    """A whole number between ``low`` and ``high``, both included."""

    type: Literal["int"]
    low: Whole
    high: Whole
    log: bool = False
    """Sample the logarithm evenly."""
    step: PositiveInt = 1
    """Only low, low + step, low + 2 step, ..."""
    when: Condition = Field(default_factory=dict)
    """The parameter exists only while these hold."""
    prior: Prior | None = None
    """A guess, and how sure it is."""

    def __post_init__(self) -> None:
        _check_bounds(self)


@dataclass(config=STRICT, kw_only=True)
class CategoricalDistribution:
    """One of ``choices``; they may be lists or mappings, or names of a group's options."""

    type: Literal["categorical"]
    choices: Annotated[list[Any], Field(min_length=1)]
    when: Condition = Field(default_factory=dict)
    """The parameter exists only while these hold."""
    prior: Prior | None = None
    """A guess, and how sure it is."""

    def __post_init__(self) -> None:
        _check_choices(self.choices)


@dataclass(config=STRICT, kw_only=True)
class OrdinalDistribution:
    """One of ``choices``, whose order means something (small, medium, large): neighbours are taken to be alike."""

    type: Literal["ordinal"]
    choices: Annotated[list[Any], Field(min_length=1)]
    when: Condition = Field(default_factory=dict)
    """The parameter exists only while these hold."""
    prior: Prior | None = None
    """A guess, and how sure it is."""

    def __post_init__(self) -> None:
        _check_choices(self.choices)


@dataclass(config=STRICT, kw_only=True)
class ConstantDistribution:
    """One value, for all trials in which ``when`` holds, also where the config has another; recorded like a searched
    one."""

    type: Literal["constant"]
    value: Any
    when: Condition = Field(default_factory=dict)
    """The parameter has the value only while these hold."""


Distribution = Annotated[
    FloatDistribution | IntDistribution | CategoricalDistribution | OrdinalDistribution | ConstantDistribution,
    Field(discriminator="type"),
]


def _check_bounds(distribution: FloatDistribution | IntDistribution) -> None:
    low, high, step = distribution.low, distribution.high, distribution.step
    if low > high:
        raise ValueError(f"low={low} is above high={high}; swap them")
    if distribution.log and low <= 0:
        raise ValueError(f"low={low} has no logarithm; use a positive low, or log: false")
    if distribution.log and step not in (None, 1):
        raise ValueError(f"log and step={step} exclude each other; drop one")


def _check_choices(choices: list[Any]) -> None:
    for index, choice in enumerate(choices):
        for other in choices[:index]:
            if choice == other and type(choice) is not type(other):  # True == 1 == 1.0, to Optuna as well
                raise ValueError(f"choices has {other!r} and {choice!r}, which are equal; keep one, or make one a text")
            if choice == other:
                raise ValueError(f"choices has {choice!r} twice; name each choice once")
