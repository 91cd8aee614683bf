"""Overview of schedules: the outcome of the last firing, and the coming ones."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, select

from sweeps.service.auth.permissions import Principal
from sweeps.service.database import tables
from sweeps.service.queue.jobs import query, seen_by
from sweeps.service.schedules.definition import Coming, Definition

_firings, _jobs = tables.firings, tables.jobs


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
        schedule, last = self.definition.schedule, self.last
        keys = ("name", "cron", "timezone", "conf", "overrides", "enabled", "overlap", "missed", "priority", "project")
        return {
            **{key: getattr(schedule, key) for key in keys},
            "last": None if last is None else {**vars(last), "due": self.definition.in_json(last.due)},
            "next": None if self.coming is None else self.coming.as_json(),
        }


def states(
    definitions: Mapping[str, Definition],
    now: float,
    connection: Connection | None = None,
    principal: Principal | None = None,
) -> list[ScheduleState]:
    """Return schedules with their last and next firings, by name. Without a connection there is no database yet, and so
    no last firing. Only sweeps that are ``visible`` to the principal are named; None: all."""
    return [
        ScheduleState(
            definition=each,
            last=None if connection is None else _last(connection, name, principal),
            coming=next(coming([each], now), None),
        )
        for name, each in sorted(definitions.items())
    ]


def coming(definitions: Iterable[Definition], now: float) -> Iterator[Coming]:
    """Return the coming firings of all enabled schedules that are in their windows, in order."""
    each = [definition.firings(now) for definition in definitions if definition.schedule.enabled]
    return (firing for firing in heapq.merge(*each, key=lambda firing: firing.due) if firing.outside is None)


def _last(connection: Connection, name: str, principal: Principal | None) -> Last | None:
    """Return the newest firing of a schedule, by index lookups."""
    of_job = (_jobs.c.id.label("job"), _jobs.c.sweep, _jobs.c.state)
    decided = (
        select(_firings.c.due, _firings.c.outcome, _firings.c.reason, *of_job)
        .outerjoin(_jobs, and_(_jobs.c.id == _firings.c.job, seen_by(principal)))
        .where(_firings.c.schedule == name)
        .order_by(_firings.c.due.desc())
        .limit(1)
    )
    row = connection.execute(decided).one_or_none()
    last = None if row is None else Last(**row._asdict())
    for job in query(connection, schedule=name, principal=principal, limit=1):
        due = job.due or 0.0
        by_cron = select(_firings.c.job).where(_firings.c.schedule == name, _firings.c.job == job.id)
        if (last is None or last.due < due) and connection.execute(by_cron).first() is None:
            return Last(due=due, outcome="by hand", reason=None, job=job.id, sweep=job.sweep, state=job.state)
    return last
