"""Decisions about firings, each made exactly once, even with several services and with kills at any statement; and the
removal of old firings.

``schedules.decided`` is the time up to which all firings of a schedule are decided. A decision, its job and the new
``decided`` are written in one transaction, which locks the schedule's row: a kill leaves all or nothing of it, and the
next service continues from there. The primary key of ``firings`` prevents a second decision.

Effects of changes to a schedule, from the moment at which a service notices them:

- A new or renamed schedule fires from now on.
- With another cron line or time zone the old one applies up to now, the new one from now on.
- A disabled or removed schedule does not fire; its undecided firings are missed. Enabled or restored, it fires from now
  on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice, takewhile
from typing import Any

from sqlalchemy import Connection, Engine, RowMapping, delete, func, insert, select, update

from sweeps.service.database import tables
from sweeps.service.database.engine import CLAIMING, lock, writing
from sweeps.service.queue import jobs
from sweeps.service.queue.job_requests import Run
from sweeps.service.queue.jobs import Job
from sweeps.service.schedules.definition import Coming, Definition

DAY_S = 86400.0
QUEUED, SKIPPED, MISSED = "queued", "skipped", "missed"
BATCH = 100
"""Maximum number of firings of ``missed: all`` queued in one transaction, during which nobody else can write."""

AHEAD_S = 600.0
"""Maximum seconds by which the clocks of two services may differ; firings that were decided further ahead are
attributed to a wrong clock."""

SETTLED_AFTER_S = 60.0
"""Seconds after a service's start within which it may not have noticed that an earlier service's sweep has ended."""

_schedules, _firings, _services = tables.schedules, tables.firings, tables.services


@dataclass(frozen=True, kw_only=True)
class Firing:
    """Outcome of a firing."""

    schedule: str
    due: float
    """Time of the firing according to the cron line."""
    outcome: str
    """Outcome: queued, skipped or missed."""
    job: int | None = None
    reason: str | None = None


def is_as_defined(row: RowMapping, definition: Definition) -> bool:
    """Whether a schedule's definition matches its row in ``schedules``."""
    return all(row[key] == value for key, value in _settings(definition).items())


def next_decision(definition: Definition, decided: float) -> float:
    """Return the time of the next decision; infinite if there is none."""
    first = next(definition.firings(decided), None)
    return math.inf if first is None else first.starts


def decide(engine: Engine, definition: Definition, now: float, service: str | None = None) -> list[Firing]:
    """Decide the outcomes of a schedule's firings up to now, and queue their sweeps.

    Returns:
        The decided firings; with ``missed: all`` at most ``BATCH`` at a time. A firing that may be blocked by a sweep
            of an earlier service waits until it is known whether that sweep still runs.
    """
    enabled = definition.schedule.enabled
    with writing(engine) as connection:
        row = _locked_row(connection, definition.name)
        if row is None:
            connection.execute(insert(_schedules).values(name=definition.name, decided=now, **_settings(definition)))
            return []
        decisions = _Decisions(connection, definition, now, service)
        if is_as_defined(row, definition):
            return decisions.pending(row["decided"]) if enabled else []
        firings = decisions.rest(row, None if enabled else "the schedule was disabled")
        _set_row(connection, definition.name, decided=now, **_settings(definition))
        return firings


def undo_ahead(engine: Engine, definition: Definition, now: float) -> None:
    """Undo decisions about future firings, which a wrong clock caused. Queued firings stay, and do not run again."""
    with writing(engine) as connection:
        row = _locked_row(connection, definition.name)
        if row is None or row["decided"] <= now + AHEAD_S:
            return  # another service has just done so
        own = _firings.c.schedule == definition.name
        connection.execute(delete(_firings).where(own, _firings.c.due > now, _firings.c.job.is_(None)))
        _set_row(connection, definition.name, decided=now)


def retire(engine: Engine, definition: Definition, now: float, service: str | None = None) -> list[Firing]:
    """Mark the undecided firings of a removed schedule as missed. If it is restored, it fires from then on."""
    with writing(engine) as connection:
        row = _locked_row(connection, definition.name)
        if row is None:
            return []
        firings = _Decisions(connection, definition, now, service).rest(row, "the schedule was removed")
        _set_row(connection, definition.name, decided=now, enabled=False)
        return firings


def fire_now(connection: Connection, definition: Definition, now: float, user: str | None = None) -> Job:
    """Queue a firing now, regardless of the cron line and the window, for the given user or else the schedule's. It
    starts after a running sweep of the schedule."""
    end, _ = definition.window(now)
    return _submit(connection, definition, now, now, end, user)


def remove_old(engine: Engine, now: float, keep_days: float) -> int:
    """Remove old firings, and return their number. They are not decided again, since ``schedules.decided`` is later;
    this time, instead of a clock that may be wrong, determines which firings are old. The newest firing of each
    schedule is kept."""
    removed = 0
    with engine.connect() as connection:
        newest = select(_schedules.c.name, _schedules.c.decided, func.max(_firings.c.due)).join(
            _firings, _firings.c.schedule == _schedules.c.name
        )
        rows = connection.execute(newest.group_by(_schedules.c.name, _schedules.c.decided)).all()
    for name, decided, last in rows:
        old = min(last, min(now, decided) - keep_days * DAY_S)
        with writing(engine) as connection:
            statement = delete(_firings).where(_firings.c.schedule == name, _firings.c.due < old)
            removed += connection.execute(statement).rowcount
    return removed


def forget(engine: Engine, names: Sequence[str]) -> None:
    """Remove the firings and nights of schedules, so that a user who later takes the same name does not see them."""
    if not names:
        return
    with writing(engine) as connection:
        for column in (_firings.c.schedule, tables.nights.c.schedule, _schedules.c.name):
            connection.execute(delete(column.table).where(column.in_(names)))


class _Decisions:
    """Decisions about one schedule in one transaction, which has locked the schedule's row."""

    def __init__(self, connection: Connection, definition: Definition, now: float, service: str | None) -> None:
        self._connection, self._definition, self._now, self._service = connection, definition, now, service

    def pending(self, decided: float) -> list[Firing]:
        """Decide all firings that are due by now."""
        ready = takewhile(lambda each: each.starts <= self._now, self._definition.firings(decided))
        limit = BATCH if self._definition.schedule.missed == "all" else None
        due = list(islice(ready, limit))
        new = self._undecided(due, decided)
        firings = self._decide(new, may_wait=True)
        waits = len(firings) < len(new)
        if firings or (due and not waits):
            decided = firings[-1].due if waits else due[-1].due
            _set_row(self._connection, self._definition.name, decided=decided)
        return firings

    def _undecided(self, due: list[Coming], decided: float) -> list[Coming]:
        """Return the firings that were not already decided by a clock that was ahead."""
        statement = select(_firings.c.due).where(_firings.c.schedule == self._definition.name, _firings.c.due > decided)
        ahead = set(self._connection.execute(statement).scalars()) if due else set()
        return [each for each in due if each.due not in ahead]

    def rest(self, row: RowMapping, missed_reason: str | None) -> list[Firing]:
        """Decide the firings that were due before the schedule was changed or removed: run them, or mark them as
        missed."""
        if not row["enabled"]:
            return []
        former = replace(self._definition.schedule, cron=row["cron"], timezone=row["timezone"])
        self._definition = replace(self._definition, schedule=former)
        due = list(takewhile(lambda each: each.due <= self._now, self._definition.firings(row["decided"])))
        new = self._undecided(due, row["decided"])
        if missed_reason is None:
            return self._decide(new, may_wait=False)
        return self._write([self._firing(each, MISSED, missed_reason) for each in new])

    def _decide(self, pending: list[Coming], *, may_wait: bool) -> list[Firing]:
        latest = max((each.due for each in pending if each.may_start(self._now)), default=math.inf)
        unfinished = self._unfinished()
        firings = []
        for each in pending:
            missed, blocked = self._missed(each, latest), self._blocked(unfinished)
            if each.outside is not None:
                firings.append(self._firing(each, SKIPPED, each.outside))
            elif missed is not None:
                firings.append(self._firing(each, MISSED, missed))
            elif blocked is not None:
                if may_wait and self._may_have_ended(unfinished[0]):
                    break
                firings.append(self._firing(each, SKIPPED, blocked))
            else:
                if self._definition.schedule.overlap == "stop_old":
                    self._stop(unfinished, each)
                    unfinished.clear()
                job = _submit(self._connection, self._definition, each.due, self._now, each.end_by)
                unfinished.append(job)
                firings.append(self._firing(each, QUEUED, job=job.id))
        return self._write(firings)

    def _unfinished(self) -> list[Job]:
        """Return the schedule's queued and running sweeps; empty if they do not affect a firing."""
        if self._definition.schedule.overlap == "queue":
            return []
        lock(self._connection, CLAIMING)  # queued jobs do not start before this is decided
        jobs.expire(self._connection, self._now)
        states = [jobs.QUEUED, jobs.RUNNING]
        return jobs.query(self._connection, states=states, schedule=self._definition.name)

    def _missed(self, each: Coming, latest: float) -> str | None:
        schedule = self._definition.schedule
        if not each.may_start(self._now):
            return "no service was up in its window"
        if self._now - each.starts <= schedule.grace_s or schedule.missed == "all":
            return None
        if schedule.missed == "none":
            return "no service was up"
        return "no service was up, and a later firing has become due" if each.due < latest else None

    def _blocked(self, unfinished: list[Job]) -> str | None:
        if self._definition.schedule.overlap != "skip" or not unfinished:
            return None
        job = unfinished[0]
        return f"{job.sweep} {'still runs' if job.state == jobs.RUNNING else 'still waits in the queue'}"

    def _may_have_ended(self, job: Job) -> bool:
        """Whether a running sweep was left by an earlier service and may have ended unnoticed."""
        statement = select(_services.c.started).where(_services.c.id == self._service)
        started: float | None = self._connection.execute(statement).scalar_one_or_none()
        if started is None or job.started is None or job.state != jobs.RUNNING:
            return False
        return job.started < started and self._now < started + SETTLED_AFTER_S

    def _stop(self, unfinished: list[Job], by: Coming) -> None:
        for job in unfinished:
            if job.state == jobs.QUEUED:
                why = f"the firing of {self._definition.name} at {self._definition.shown(by.due)} takes its place"
                jobs.cancel(self._connection, job.id, self._now, why)
            else:
                jobs.request_stop(self._connection, job.id, self._now)

    def _firing(self, each: Coming, outcome: str, reason: str | None = None, job: int | None = None) -> Firing:
        return Firing(schedule=self._definition.name, due=each.due, outcome=outcome, job=job, reason=reason)

    def _write(self, firings: list[Firing]) -> list[Firing]:
        rows = [{**asdict(each), "decided": self._now, "service": self._service} for each in firings]
        if rows:
            self._connection.execute(insert(_firings), rows)
        return firings


def _settings(definition: Definition) -> dict[str, str | bool]:
    """Return the settings that determine when a schedule fires."""
    schedule = definition.schedule
    return {"cron": schedule.cron, "timezone": schedule.timezone, "enabled": schedule.enabled}


def _locked_row(connection: Connection, name: str) -> RowMapping | None:
    statement = select(_schedules).where(_schedules.c.name == name).with_for_update()  # SQLite: locked by `writing`
    return connection.execute(statement).mappings().one_or_none()


def _set_row(connection: Connection, name: str, **values: Any) -> None:
    connection.execute(update(_schedules).where(_schedules.c.name == name).values(**values))


def _submit(
    connection: Connection,
    definition: Definition,
    due: float,
    now: float,
    end: float | None,
    user: str | None = None,
) -> Job:
    schedule = definition.schedule
    return jobs.submit(
        connection,
        Run(conf=schedule.conf, overrides=definition.overrides(due)),
        definition.sweep_name(due),
        user=user or schedule.user,
        project=schedule.project,
        priority=schedule.priority,
        now=now,
        end_by=end,
        schedule=definition.name,
        due=due,
    )
