"""Overview of schedules: the outcome of the last firing, and the coming ones."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import Connection, and_, select

from sweeps.service.auth.permissions import Principal
from sweeps.service.database import tables
from sweeps.service.queue.job_query import newest, seen_by
from sweeps.service.queue.jobs import STATES
from sweeps.service.schedules.definition import Definition, OutsideWindow

_firings, _jobs = tables.firings, tables.jobs


@dataclass(frozen=True, kw_only=True)
class Coming:
    """A coming firing. Times are seconds since 1970."""

    definition: Definition
    due: float
    """Time of the firing according to the cron line."""
    starts: float
    """Start, including jitter."""
    end_by: float | None
    """Deadline of the firing's sweep."""

    def as_json(self) -> dict[str, Any]:
        """Return the document, with times in the schedule's time zone."""
        zone = self.definition.line.zone
        times = {"due": self.due, "starts": self.starts, "end_by": self.end_by}
        return {"schedule": self.definition.name, **{key: _shown(time, zone) for key, time in times.items()}}


@dataclass(frozen=True, kw_only=True)
class Last:
    """The last firing, by the cron line or by hand."""

    due: float
    outcome: str
    """Outcome: queued, skipped, missed or ``by hand``."""
    reason: str | None
    job: int | None
    sweep: str | None
    state: str | None
    """State of the firing's job."""


@dataclass(frozen=True, kw_only=True)
class ScheduleState:
    """A schedule with its last and next firing."""

    definition: Definition
    last: Last | None
    coming: Coming | None
    """The next firing; None if the schedule is disabled."""

    def as_json(self) -> dict[str, Any]:
        """Return the document, with times in the schedule's time zone."""
        schedule, zone, last = self.definition.schedule, self.definition.line.zone, self.last
        keys = ("name", "cron", "timezone", "conf", "overrides", "enabled", "overlap", "missed", "priority", "project")
        return {
            **{key: getattr(schedule, key) for key in keys},
            "last": None if last is None else {**vars(last), "due": _shown(last.due, zone)},
            "next": None if self.coming is None else self.coming.as_json(),
        }


def states(
    definitions: Mapping[str, Definition],
    now: float,
    connection: Connection | None = None,
    principal: Principal | None = None,
) -> list[ScheduleState]:
    """Return schedules with their last and next firings, by name.

    Args:
        definitions: The schedules.
        now: Current time.
        connection: Connection to the service's database; None if there is none yet, and so no firing.
        principal: Only sweeps that are visible to this principal; None: all.
    """
    return [
        ScheduleState(
            definition=each,
            last=None if connection is None else _last(connection, name, principal),
            coming=next(coming([each], now), None),
        )
        for name, each in sorted(definitions.items())
    ]


def coming(definitions: Iterable[Definition], now: float) -> Iterator[Coming]:
    """Yield the coming firings of all enabled schedules, in order."""
    each = [_coming(definition, now) for definition in definitions if definition.schedule.enabled]
    return heapq.merge(*each, key=lambda firing: firing.due)


def _coming(definition: Definition, now: float) -> Iterator[Coming]:
    for due in definition.line.after(now):
        try:
            end = definition.window_end(due)
            yield Coming(definition=definition, due=due, starts=definition.starts(due), end_by=end)
        except OutsideWindow:
            continue


def _last(connection: Connection, name: str, principal: Principal | None) -> Last | None:
    """Return the newest firing of a schedule, by index lookups."""
    decided = (
        select(_firings.c.due, _firings.c.outcome, _firings.c.reason, _jobs.c.id, _jobs.c.sweep, _jobs.c.state)
        .outerjoin(_jobs, and_(_jobs.c.id == _firings.c.job, seen_by(principal)))
        .where(_firings.c.schedule == name)
        .order_by(_firings.c.due.desc())
        .limit(1)
    )
    row = connection.execute(decided).one_or_none()
    last = None
    if row is not None:
        last = Last(due=row.due, outcome=row.outcome, reason=row.reason, job=row.id, sweep=row.sweep, state=row.state)
    newest_job = newest(STATES, filters={"schedule": name}, principal=principal, before=None, most=1).scalar_subquery()
    by_hand = select(_jobs.c.due, _jobs.c.id, _jobs.c.sweep, _jobs.c.state).where(_jobs.c.id == newest_job)
    job = connection.execute(by_hand).one_or_none()
    if job is None or (last is not None and (last.job == job.id or last.due >= job.due)):
        return last
    decides = select(_firings.c.job).where(_firings.c.schedule == name, _firings.c.job == job.id)
    if connection.execute(decides).first() is not None:
        return last
    return Last(due=job.due, outcome="by hand", reason=None, job=job.id, sweep=job.sweep, state=job.state)


def _shown(time: float | None, zone: ZoneInfo) -> str | None:
    return None if time is None else datetime.fromtimestamp(time, zone).isoformat(timespec="seconds")
