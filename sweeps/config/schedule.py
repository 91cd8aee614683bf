"""Schema of a schedule (``conf/schedule/*.yaml``): which sweep starts when, and under which conditions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from sweeps.config.nights import Nights
from sweeps.config.search import Cost
from sweeps_train.config import STRICT, NonNegativeFloat, PositiveFloat

LONGEST_NAME = 60
"""Maximum characters of a schedule's name, to which the time of a firing and the number of a trial are appended."""

LONGEST_WINDOW_H = 366 * 24
LONGEST_JITTER_S = 7 * 24 * 3600


def _unquoted_time(value: Any) -> Any:
    """Convert a time that YAML has read as a base-60 number, such as an unquoted 22:30."""
    is_time = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 24 * 60
    return f"{value // 60:02}:{value % 60:02}" if is_time else value


Time = Annotated[str, BeforeValidator(_unquoted_time), Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
"""``HH:MM``, in the schedule's time zone."""


@dataclass(config=STRICT, kw_only=True)
class Window:
    """Time in which a schedule's sweep may run: from ``start`` to ``end`` each day, or for ``hours`` from its
    firing."""

    start: Time | None = None
    """Start of the window; firings outside of the window are skipped."""
    end: Time | None = None
    """End of the window, at which a running sweep is stopped; on the next day if it is before ``start``."""
    hours: Annotated[PositiveFloat, Field(le=LONGEST_WINDOW_H)] | None = None
    """Length of the window in hours (at most a year) from the time of the cron line; a running sweep is stopped at its
    end."""

    def __post_init__(self) -> None:
        if (self.start is None) != (self.end is None) or (self.start is None) == (self.hours is None):
            raise ValueError("a window needs start and end, as in {start: '22:00', end: '06:00'}, or hours")
        if self.start is not None and self.start == self.end:
            raise ValueError(f"start={self.start} and end={self.end} leave no time; give another end, or no window")


@dataclass(config=STRICT, kw_only=True)
class Budget:
    """Budget of the sweep that one firing starts; it sets the limits of ``search.stop``."""

    gpu_hours: PositiveFloat | None = None
    """GPU hours of the trials."""
    wall_hours: PositiveFloat | None = None
    """Hours since the start of the sweep."""
    cost: Cost | None = None
    """Cost of the trials' resources."""


@dataclass(config=STRICT, kw_only=True)
class Schedule:
    """A cron line and the sweep that it starts."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=LONGEST_NAME)]
    """Name of the schedule; a renamed schedule is a new one, which has not fired yet."""
    cron: Annotated[str, Field(min_length=1, max_length=200)]
    """Minute, hour, day of the month, month, day of the week, as in crontab(5); or @hourly, @daily, @weekly, ..."""
    timezone: Annotated[str, Field(min_length=1, max_length=100)] = "UTC"
    """Time zone of the cron line and the window, such as Europe/Berlin."""
    conf: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*$")]
    """Name of the sweep's config, as in ``run conf=NAME``, not a file; users' own configs are in a folder of
    configs."""
    overrides: list[str] = Field(default_factory=list)
    """Overrides of the config, as in ``[search.num_trials=32]``. ``{due:%Y-%m-%d}`` is replaced by the firing's time in
    strftime format, for data that change every night."""
    enabled: bool = True
    """Whether the schedule fires."""
    overlap: Literal["skip", "queue", "stop_old"] = "skip"
    """Reaction to a firing while the last sweep is queued or running: skip the firing, queue it after that sweep, or
    stop that sweep first. Two sweeps of one schedule never run at once."""
    missed: Literal["latest", "all", "none"] = "latest"
    """Firings to run of those that were missed while no service was up: the latest, all in turn, or none."""
    grace_s: NonNegativeFloat = 60.0
    """Seconds that a firing may be late, for instance after a restart of the service, before it counts as missed."""
    jitter_s: Annotated[NonNegativeFloat, Field(le=LONGEST_JITTER_S)] = 0.0
    """Maximum random delay in seconds (at most a week) after the time of the cron line, so that not all sweeps start at
    once. The same firing always gets the same delay."""
    window: Window | None = None
    """Time in which the sweeps may run; default: any time."""
    budget: Budget | None = None
    """Budget of each sweep; default: that of the sweep's config."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Priority in the queue; higher starts first."""
    user: Annotated[str, Field(min_length=1, max_length=100)] = "schedules"
    """User of the sweeps."""
    project: Annotated[str, Field(min_length=1, max_length=100)] = "default"
    """Project of the sweeps, which determines their limits and visibility."""
    nights: Nights | None = None
    """Settings for sweeps that build on earlier ones; default: they do not."""

    def __post_init__(self) -> None:
        hours = self.window.hours if self.window is not None else None
        if hours is not None and self.jitter_s >= hours * 3600:
            raise ValueError(f"jitter_s={self.jitter_s:g} is longer than window.hours={hours:g}; make one of them fit")

    def all_overrides(self) -> list[str]:
        """Return the overrides followed by those of the budget, which take precedence."""
        budget = self.budget
        if budget is None:
            return list(self.overrides)
        stop: dict[str, float | None] = {"gpu_hours": budget.gpu_hours, "wall_hours": budget.wall_hours}
        if budget.cost is not None:
            stop |= {f"cost.{key}": value for key, value in vars(budget.cost).items() if not key.startswith("_")}
        return [*self.overrides, *(f"search.stop.{key}={value}" for key, value in stop.items() if value is not None)]
