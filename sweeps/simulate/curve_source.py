"""Interface of simulated learning curves: all reports that a trial would make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sweeps.space.space import Point


@dataclass(frozen=True)
class Report:
    """One report of a trial."""

    step: int
    """Number of optimizer steps done."""
    elapsed_s: float
    """Seconds of training so far."""
    metrics: Mapping[str, float]
    """Metrics, and progress in the units of schedulers (``epochs``, ``samples``), by name."""


class CurveSource(Protocol):
    """Source of the learning curve of a trial, at any point of a space."""

    def curve(self, point: Point) -> list[Report]:
        """Return all reports of a trial that trains to its end, in order; at least one."""
