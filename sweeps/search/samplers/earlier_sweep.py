"""Trials of an earlier sweep, as points in the space of this sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeps.space.distributions import is_number
from sweeps.space.space import Lookup, Point, Space, point_of


@dataclass(frozen=True)
class EarlierSweep:
    """Trials of an earlier sweep, as points in the space of this sweep."""

    name: str
    """Name of the sweep, or of the source of its trials."""
    points: list[Point]
    """Points of this sweep's space, best first."""
    values: list[float]
    """Value of the metric at each point."""
    runs: list[str] = field(default_factory=list)
    """MLflow run of each point; empty for trials that were not made by Sweeps."""
    note: str = ""
    """Description of trials that were left out, and of names that were matched."""


def as_point(space: Space, lookup: Lookup, config: Lookup, params: Mapping[str, Any]) -> Point | str:
    """Convert a trial's parameters to a point of this sweep's space.

    Args:
        space: This sweep's space.
        lookup: Returns this sweep's own value at a path.
        config: Returns the value at a path of the trial's config: ``config_lookup``.
        params: The trial's parameters.

    Returns:
        The point; or the path whose value lies outside of the space.
    """
    for path, value in params.items():
        if path not in space.distributions and not is_number(value) and value != lookup(path):
            return path
    point, outside = point_of(space, lambda path: params[path] if path in params else config(path), lookup)
    return next(iter(outside), point)
