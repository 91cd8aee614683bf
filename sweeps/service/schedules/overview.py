"""Schedules as people want to see them: what came of the last firing, and when the next ones are."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import Connection, func, select

from sweeps.service import database
from sweeps.service.schedules.definition import Definition, OutsideWindow

_firings, _jobs = database.firings, database.jobs


@dataclass(frozen=True, kw_only=True)
class Coming:
    """A firing to come. Times are seconds since 1970."""

    definition: Definition
    due: float
    """The time that the cron line names."""
    starts: float
    """With its jitter."""
    end_by: float | None
    """When its sweep must have ended."""

    def as_json(self) -> dict[str, Any]:
        """Times as clocks in the schedule's zone show them."""
        zone = self.definition.line.zone
        times = {"due": self.due, "starts": self.starts, "end_by": self.end_by}
        return {"schedule": self.definition.name, **{key: _shown(time, zone) for key, time in times.items()}}


@dataclass(frozen=True, kw_only=True)
class Last:
    """The last firing that was decided, or made by hand."""

    due: float
    outcome: str
    """queued, skipped or missed; or ``by hand``."""
    reason: str | None
    job: int | None
    sweep: str | None
    state: str | None
    """Of the job."""


@dataclass(frozen=True, kw_only=True)
class ScheduleState:
    """How a schedule stands."""

    definition: Definition
    last: Last | None
    coming: Coming | None
    """The next firing; None if it is disabled."""

    def as_json(self) -> dict[str, Any]:
        """Times as clocks in the schedule's zone show them."""
        schedule, zone, last = self.definition.schedule, self.definition.line.zone, self.last
        keys = ("name", "cron", "timezone", "conf", "overrides", "enabled", "overlap", "missed", "priority", "project")
        return {
            **{key: getattr(schedule, key) for key in keys},
            "last": None if last is None else {**vars(last), "due": _shown(last.due, zone)},
            "next": None if self.coming is None else self.coming.as_json(),
        }


def states(
    definitions: Mapping[str, Definition], now: float, connection: Connection | None = None
) -> list[ScheduleState]:
    """How schedules stand, in the order of their names.

    Args:
        definitions: The schedules.
        now: The time.
        connection: To the service's database; without one there was no firing.
    """
    last = {} if connection is None else _last(connection)
    return [
        ScheduleState(definition=each, last=last.get(name), coming=next(coming([each], now), None))
        for name, each in sorted(definitions.items())
    ]


def coming(definitions: Iterable[Definition], now: float) -> Iterator[Coming]:
    """The firings to come of all that are enabled, in order."""
    each = [_coming(definition, now) for definition in definitions if definition.schedule.enabled]
    return heapq.merge(*each, key=lambda firing: firing.due)


def _coming(definition: Definition, now: float) -> Iterator[Coming]:
    for due in definition.line.after(now):
        try:
            end = definition.window_end(due)
            yield Coming(definition=definition, due=due, starts=definition.starts(due), end_by=end)
        except OutsideWindow:
            continue


def _last(connection: Connection) -> dict[str, Last]:
    """Of every schedule that has fired."""
    newest = select(_firings.c.schedule, func.max(_firings.c.due).label("due")).group_by(_firings.c.schedule).subquery()
    of_line = (
        select(_firings.c.schedule, _firings.c.due, _firings.c.outcome, _firings.c.reason)
        .add_columns(_jobs.c.id, _jobs.c.sweep, _jobs.c.state)
        .join(newest, (_firings.c.schedule == newest.c.schedule) & (_firings.c.due == newest.c.due))
        .outerjoin(_jobs, _jobs.c.id == _firings.c.job)
    )
    newest_job = select(func.max(_jobs.c.id)).where(_jobs.c.schedule.is_not(None)).group_by(_jobs.c.schedule)
    by_hand = (
        select(_jobs.c.schedule, _jobs.c.due, _jobs.c.id, _jobs.c.sweep, _jobs.c.state)
        .where(_jobs.c.id.in_(newest_job))
        .where(~select(_firings.c.job).where(_firings.c.job == _jobs.c.id).exists())
    )
    found = {}
    for schedule, due, outcome, reason, job, sweep, state in connection.execute(of_line):
        found[schedule] = Last(due=due, outcome=outcome, reason=reason, job=job, sweep=sweep, state=state)
    for schedule, due, job, sweep, state in connection.execute(by_hand):
        if schedule not in found or found[schedule].due < due:
            found[schedule] = Last(due=due, outcome="by hand", reason=None, job=job, sweep=sweep, state=state)
    return found


def _shown(time: float | None, zone: ZoneInfo) -> str | None:
    return None if time is None else datetime.fromtimestamp(time, zone).isoformat(timespec="seconds")
