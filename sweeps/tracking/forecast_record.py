"""Forecast of a running sweep's time and cost, as recorded on the parent run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

LEVEL = 0.8
"""Probability that an interval contains the true number."""


INTERVALS = ("wall_s", "worker_hours", "gpu_hours", "cost")
"""Names of the numbers that are forecast."""


class Interval(NamedTuple):
    """Forecast of one number, with its interval."""

    low: float
    middle: float
    high: float

    def scaled(self, factor: float) -> Interval:
        """Return the forecast of a multiple of the number."""
        return Interval(self.low * factor, self.middle * factor, self.high * factor)


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Expected time and cost of the rest of a sweep."""

    at: float
    """Unix time at which the forecast was made."""
    wall_s: Interval | None = None
    """Seconds to the end; None while too little is known."""
    worker_hours: Interval | None = None
    """Worker-hours that trials will still use."""
    gpu_hours: Interval | None = None
    """GPU-hours that trials will still use; None if they use none."""
    cost: Interval | None = None
    """Cost of the remaining hours, in the currency of the prices; None without prices."""
    missing: tuple[str, ...] = ()
    """Explanations of the parts that are unknown."""
    stage: int | None = None
    """Number of the stage that is forecast; None: the search after its stages, to the end of the sweep."""

    def after(self, seconds: float) -> Forecast:
        """Return the forecast for the moment at which the sweep has run for some more seconds: less time is left."""
        if self.wall_s is None or seconds <= 0:
            return self
        return replace(self, wall_s=Interval(*(max(0.0, each - seconds) for each in self.wall_s)))

    def as_json(self) -> dict[str, Any]:
        """Return the forecast in the form of ``--json``."""
        return {
            "at": self.at,
            "level": LEVEL,
            **{name: None if (found := getattr(self, name)) is None else found._asdict() for name in INTERVALS},
            "missing": list(self.missing),
            "stage": self.stage,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Forecast:
        """Return the forecast from the values of ``as_json``."""
        intervals = {name: None if (found := document[name]) is None else Interval(**found) for name in INTERVALS}
        return cls(**intervals, at=document["at"], missing=tuple(document["missing"]), stage=document["stage"])
