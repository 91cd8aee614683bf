"""Rescales searched values from one stage to the next, such as the learning rate with the width of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweeps.compose import Composition
from sweeps.config.space import FloatDistribution, IntDistribution
from sweeps.space.distributions import as_sampled
from sweeps.space.space import Point, Space
from sweeps.validate.config_checks import phases_of
from sweeps.validate.rescaling_checks import rescaling_factor

Factors = Mapping[str, float]
"""Factors of searched values, by their path."""


def stage_factors(composition: Composition) -> list[Factors]:
    """Return the factors of each stage of a checked sweep to the next stage, and of the last stage to the sweep.

    Args:
        composition: The sweep.
    """
    stages = composition.config.search.stages
    if not any(stage.rescale for stage in stages):
        return [{} for _ in stages]
    phases = phases_of(composition)
    return [
        {path: rescaling_factor(rule, phases[index], phases[index + 1]) for path, rule in stage.rescale.items()}
        for index, stage in enumerate(stages)
    ]


def rescaled(point: Mapping[str, Any], factors: Factors, space: Space) -> Point:
    """Return a point of a stage with its values in the next stage, within the ranges of the space.

    Args:
        point: Values by path.
        factors: Factors of the stage.
        space: Space of the search.
    """
    values = dict(point)
    for path, factor in factors.items():
        if path in values:
            values[path] = _within(space[path], values[path] * factor)
    return values


def _within(distribution: Any, value: float) -> Any:
    """The value of a range that is nearest to a number."""
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, step = distribution.low, distribution.step
    value = min(max(value, low), distribution.high)
    if step is not None:
        steps = min(round((value - low) / step), int((distribution.high - low) / step + 1e-9))
        value = low + steps * step
    return as_sampled(distribution, value)
