"""Schedules as people want to see them: what came of the last firing, and when the next ones are."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import Connection, select

from sweeps.service.database import tables
from sweeps.service.queue.job_query import newest
from sweeps.service.queue.jobs import STATES
from sweeps.service.schedules.definition import Definition, OutsideWindow

_firings, _jobs = tables.firings, tables.jobs


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
    last = {} if connection is None else _last(connection, list(definitions))
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


def _last(connection: Connection, names: Sequence[str]) -> dict[str, Last]:
    """Newest firing of each schedule: one look at the end of an index for each."""
    found = {name: _last_of(connection, name) for name in names}
    return {name: last for name, last in found.items() if last is not None}


def _last_of(connection: Connection, name: str) -> Last | None:
    decided = (
        select(_firings.c.due, _firings.c.outcome, _firings.c.reason, _jobs.c.id, _jobs.c.sweep, _jobs.c.state)
        .outerjoin(_jobs, _jobs.c.id == _firings.c.job)
        .where(_firings.c.schedule == name)
        .order_by(_firings.c.due.desc())
        .limit(1)
    )
    row = connection.execute(decided).one_or_none()
    last = None
    if row is not None:
        last = Last(due=row.due, outcome=row.outcome, reason=row.reason, job=row.id, sweep=row.sweep, state=row.state)
    newest_job = newest(STATES, filters={"schedule": name}, principal=None, before=None, most=1).scalar_subquery()
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
