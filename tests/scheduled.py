"""Schedules for tests: a clock that travels, definitions without files, and what has become of their firings."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import Engine, select, update

from sweeps.compose.schema_errors import read_as
from sweeps.config.schedule import Schedule
from sweeps.service.clock import Clock
from sweeps.service.database import tables
from sweeps.service.database.engine import writing
from sweeps.service.schedules.definition import Definition


def at(shown: str, zone: str = "UTC") -> float:
    """The instant at which clocks show this."""
    return datetime.fromisoformat(shown).replace(tzinfo=ZoneInfo(zone)).timestamp()


class Travelling(Clock):
    """A clock that stands until it is told to go on, or sleeps."""

    def __init__(self, shown: str) -> None:
        self.time = at(shown)
        self.set_by = 0.0

    def now(self) -> float:
        return self.time

    def steady(self) -> float:
        return self.time - self.set_by

    def put(self, seconds: float) -> None:
        """Somebody sets the clock; no time passes."""
        self.time += seconds
        self.set_by += seconds

    def wait(self, wake: threading.Event, seconds: float) -> bool:
        self.time += seconds
        return wake.is_set()


def defined(cron: str = "0 2 * * *", **settings: Any) -> Definition:
    """A schedule of digits, called nightly."""
    return Definition(read_as(Schedule, {"name": "nightly", "cron": cron, "conf": "digits", **settings}))


def outcomes(engine: Engine, name: str = "nightly") -> dict[str, str]:
    """Outcome of each firing, by the time when it was due."""
    firings = tables.firings
    asked = select(firings.c.due, firings.c.outcome).where(firings.c.schedule == name).order_by(firings.c.due)
    with engine.connect() as connection:
        return {
            f"{datetime.fromtimestamp(due, ZoneInfo('UTC')):%d %H:%M}": out for due, out in connection.execute(asked)
        }


def sweeps(engine: Engine, *states: str) -> list[str]:
    """Names of the sweeps of jobs in these states; default: of all."""
    jobs = tables.jobs
    asked = select(jobs.c.sweep).order_by(jobs.c.id)
    with engine.connect() as connection:
        return list(connection.execute(asked.where(jobs.c.state.in_(states)) if states else asked).scalars())


def set_state(engine: Engine, state: str, *sweeps: str) -> None:
    """Set the state of these sweeps' jobs, as the runner would; default: of all that wait or run."""
    jobs = tables.jobs
    which = jobs.c.sweep.in_(sweeps) if sweeps else jobs.c.state.in_(["queued", "running"])
    with writing(engine) as connection:
        connection.execute(update(jobs).where(which).values(state=state))
