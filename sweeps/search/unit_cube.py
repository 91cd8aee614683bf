"""Encoding of points as vectors in the unit cube, for distances and regressions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeps.config.space import (
    CategoricalDistribution,
    ConstantDistribution,
    Distribution,
    FloatDistribution,
    IntDistribution,
    OrdinalDistribution,
)
from sweeps.space.distributions import decode, index_of, nearest
from sweeps.space.space import Point, Space

Vector = npt.NDArray[np.float64]

_ABSENT = object()
"""Value of a parameter that a point lacks; None may be a choice."""


class UnitCube:
    """Encodes points of a space as vectors.

    A number or an ordered choice is one column from 0 to 1 on its own scale (logarithmic if it is sampled so). A choice
    has a column for each option, so that two different options are 1 apart. A parameter with a condition has a further
    column that says whether it is there.
    """

    def __init__(self, space: Space):
        self._space = {
            path: distribution
            for path, distribution in space.distributions.items()
            if not isinstance(distribution, ConstantDistribution)
        }

    @cached_property
    def columns(self) -> list[str]:
        """The parameter of each column."""
        return [path for path, distribution in self._space.items() for _ in _columns(distribution, _ABSENT)]

    @cached_property
    def groups(self) -> list[int]:
        """The index of each column's parameter, from 0: columns of one parameter share an index."""
        parameters = list(dict.fromkeys(self.columns))
        return [parameters.index(each) for each in self.columns]

    def vector(self, point: Point) -> Vector:
        """Return a point as a vector of shape ``[columns]``; a missing parameter is at the middle of its range."""
        columns: list[float] = []
        for path, distribution in self._space.items():
            columns.extend(_columns(distribution, point.get(path, _ABSENT)))
        return np.array(columns)

    def matrix(self, points: Sequence[Point]) -> Vector:
        """Return points as an array of shape ``[points, columns]``."""
        return np.array([self.vector(point) for point in points]).reshape(len(points), len(self.columns))

    def point(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the point of an Optuna trial, without constants and without parameters that the space lacks.

        Args:
            parameters: Parameters of the trial: choices as text or number, ordered choices as their index.
        """
        return {
            path: decode(distribution, parameters[path])
            for path, distribution in self._space.items()
            if path in parameters
        }


def position(distribution: FloatDistribution | IntDistribution | OrdinalDistribution, value: Any) -> float:
    """Return the position of a value in its range, from 0 to 1; below 0 or above 1 for a value outside the range."""
    low, high = scaled_bounds(distribution)
    if low == high:
        return 0.5
    return (_scale(distribution, value) - low) / (high - low)


def value_at(distribution: FloatDistribution | IntDistribution | OrdinalDistribution, position: float) -> Any:
    """Return the value nearest to a position between 0 and 1 that can be sampled."""
    low, high = scaled_bounds(distribution)
    scaled = low + position * (high - low)
    if isinstance(distribution, OrdinalDistribution):
        return distribution.choices[round(scaled)]
    return nearest(distribution, math.exp(scaled) if distribution.log else scaled)


def scaled_bounds(distribution: FloatDistribution | IntDistribution | OrdinalDistribution) -> tuple[float, float]:
    """Return both bounds of a range, on its own scale."""
    if isinstance(distribution, OrdinalDistribution):
        return 0.0, len(distribution.choices) - 1.0
    return _scale(distribution, distribution.low), _scale(distribution, distribution.high)


def _scale(distribution: FloatDistribution | IntDistribution | OrdinalDistribution, value: Any) -> float:
    if isinstance(distribution, OrdinalDistribution):
        index = index_of(distribution.choices, value)
        assert index is not None
        return float(index)
    return math.log(value) if distribution.log else float(value)


def _columns(distribution: Distribution, value: Any) -> list[float]:
    """Return the columns of one parameter; for an absent one, those of the middle of its range."""
    if isinstance(distribution, CategoricalDistribution):
        chosen = index_of(distribution.choices, value)
        columns = [math.sqrt(0.5) * (index == chosen) for index in range(len(distribution.choices))]
    else:
        assert not isinstance(distribution, ConstantDistribution)
        columns = [0.5 if value is _ABSENT else position(distribution, value)]
    return [*columns, float(value is not _ABSENT)] if distribution.when else columns
