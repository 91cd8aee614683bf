"""The schema of a schedule (``conf/schedule/*.yaml``): when which sweep starts, and what may keep it from that."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from sweeps.config.nights import Nights
from sweeps.config.search import Cost
from sweeps_train.config import STRICT, NonNegativeFloat, PositiveFloat

LONGEST_NAME = 60
"""Characters of a schedule's name: the time of a firing is added to it, and its sweep's trials to that."""


def _unquoted_time(value: Any) -> Any:
    """YAML reads an unquoted 22:30 as a number to the base of sixty."""
    is_time = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 24 * 60
    return f"{value // 60:02}:{value % 60:02}" if is_time else value


Time = Annotated[str, BeforeValidator(_unquoted_time), Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
"""``HH:MM``, in the schedule's time zone."""


@dataclass(config=STRICT, kw_only=True)
class Window:
    """When a schedule's sweep may run: from ``start`` to ``end`` each day, or for ``hours`` from its firing."""

    start: Time | None = None
    """Before it nothing starts: firings outside of the window are skipped."""
    end: Time | None = None
    """Until then the sweep must have ended: it is stopped if it has not. At the next day if that is before start."""
    hours: PositiveFloat | None = None
    """Hours from the time that the cron line says, until which the sweep must have ended."""

    def __post_init__(self) -> None:
        if (self.start is None) != (self.end is None) or (self.start is None) == (self.hours is None):
            raise ValueError("a window needs start and end, as in {start: '22:00', end: '06:00'}, or hours")
        if self.start is not None and self.start == self.end:
            raise ValueError(f"start={self.start} and end={self.end} leave no time; give another end, or no window")


@dataclass(config=STRICT, kw_only=True)
class Budget:
    """What one firing's sweep may use: ``search.stop`` has the same, and ends the sweep at it."""

    gpu_hours: PositiveFloat | None = None
    """Hours of GPUs that its trials hold."""
    wall_hours: PositiveFloat | None = None
    """Hours since the sweep began."""
    cost: Cost | None = None
    """Money for what its trials hold."""


@dataclass(config=STRICT, kw_only=True)
class Schedule:
    """A cron line and the sweep that it starts."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=LONGEST_NAME)]
    """What it is known by: a schedule with another name is another schedule, and has not fired yet."""
    cron: Annotated[str, Field(min_length=1, max_length=200)]
    """Minute, hour, day of the month, month, day of the week, as in crontab(5); or @hourly, @daily, @weekly, ..."""
    timezone: Annotated[str, Field(min_length=1, max_length=100)] = "UTC"
    """Whose clocks the cron line and the window mean: a name such as Europe/Berlin."""
    conf: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*$")]
    """The sweep: what ``run conf=`` takes, but no file; those of people's own are in a folder of configs."""
    overrides: list[str] = Field(default_factory=list)
    """What is changed of it: what ``run`` takes after that, as in ``[search.num_trials=32]``. The firing's own time is
    ``{due:%Y-%m-%d}``, in the form of strftime, for data that come every night."""
    enabled: bool = True
    """Whether it fires."""
    overlap: Literal["skip", "queue", "stop_old"] = "skip"
    """When it fires while its last sweep waits or runs: skip this firing, let it wait for that sweep's end, or stop
    that sweep and start this one then. Two sweeps of one schedule never run at once."""
    missed: Literal["latest", "all", "none"] = "latest"
    """Of the firings that came while no service was up: run the latest, each of them in turn, or none."""
    grace_s: NonNegativeFloat = 60.0
    """Seconds that a firing may be late, as when a service starts anew, before it counts as missed."""
    jitter_s: NonNegativeFloat = 0.0
    """Up to so many seconds later than the cron line says, so that not all of a team's sweeps start at once. The same
    firing always gets the same delay."""
    window: Window | None = None
    """When its sweeps may run; default: at any time."""
    budget: Budget | None = None
    """What each of its sweeps may use; default: what the sweep's own config says."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Its place in the queue: the higher starts first."""
    user: Annotated[str, Field(min_length=1, max_length=100)] = "schedules"
    """Whose sweeps they are."""
    project: Annotated[str, Field(min_length=1, max_length=100)] = "default"
    """To which project's limits they count, and who may see them."""
    nights: Nights | None = None
    """How its sweeps build on each other; default: they do not."""

    def __post_init__(self) -> None:
        hours = self.window.hours if self.window is not None else None
        if hours is not None and self.jitter_s >= hours * 3600:
            raise ValueError(f"jitter_s={self.jitter_s:g} is longer than window.hours={hours:g}; make one of them fit")

    def all_overrides(self) -> list[str]:
        """Those of its budget come last: it is a limit."""
        budget = self.budget
        if budget is None:
            return list(self.overrides)
        stop: dict[str, float | None] = {"gpu_hours": budget.gpu_hours, "wall_hours": budget.wall_hours}
        if budget.cost is not None:
            stop |= {f"cost.{key}": value for key, value in vars(budget.cost).items() if not key.startswith("_")}
        return [*self.overrides, *(f"search.stop.{key}={value}" for key, value in stop.items() if value is not None)]
