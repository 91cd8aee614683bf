"""Firings, each of them decided exactly once: also with several services at once, and killed at any statement.

``schedules.decided`` says up to when all firings of a schedule have been decided. A decision, the job that comes of it
and the new ``decided`` are one transaction, which holds the schedule's row: a kill leaves all of it or nothing, and who
comes next, here or in another service, goes on from there. The key of ``firings`` would refuse a second decision.

What becomes of a schedule that is not as it was, from the moment at which a service sees it:

- A new one, or one that has another name, fires from now on.
- With another cron line or time zone it fires by that from now on; up to now the old one counts.
- Disabled or gone, it does not fire; what was still undecided is missed. Enabled or back, it fires from now on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice, takewhile

from sqlalchemy import Connection, Engine, RowMapping, delete, insert, select, update

from sweeps.service.database import tables
from sweeps.service.database.engine import CLAIMING, lock, writing
from sweeps.service.queue import jobs
from sweeps.service.queue.jobs import Job
from sweeps.service.queue.requests import Run
from sweeps.service.schedules.definition import Definition, OutsideWindow

QUEUED, SKIPPED, MISSED = "queued", "skipped", "missed"
AT_ONCE = 100
"""Firings of ``missed: all`` that become jobs in one transaction, during which nobody else can write."""

AHEAD_S = 600.0
"""Seconds by which the clocks of two services may differ: decided further ahead than that is what a wrong one did."""

SETTLED_AFTER_S = 60.0
"""Seconds after its start until when a service may not know yet that a sweep has ended while no service was up."""

_schedules, _firings, _services = tables.schedules, tables.firings, tables.services


@dataclass(frozen=True, kw_only=True)
class Firing:
    """What became of a firing."""

    schedule: str
    due: float
    """The time that the cron line names."""
    outcome: str
    """queued, skipped or missed."""
    job: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class _Pending:
    """A firing that is not decided."""

    due: float
    ready: float
    """When it is to be decided."""
    end: float | None
    """When its sweep must have ended."""
    outside: str | None = None
    """Why its window leaves it out."""

    def may_start(self, now: float) -> bool:
        return self.outside is None and (self.end is None or now < self.end)


def is_as_defined(row: RowMapping, definition: Definition) -> bool:
    """Whether a schedule is still what its row in ``schedules`` says."""
    return all(row[key] == value for key, value in _settings(definition).items())


def next_decision(definition: Definition, decided: float) -> float:
    """When the first firing after those that are decided is to be decided; infinite if there is none."""
    first = next(_in_turn(definition, decided), None)
    return math.inf if first is None else first.ready


def decide(engine: Engine, definition: Definition, now: float, service: str | None = None) -> list[Firing]:
    """Decide what becomes of a schedule's firings up to now, and put their sweeps into the queue.

    Args:
        engine: The service's database.
        definition: The schedule.
        now: The time.
        service: Who decides.

    Returns:
        The firings that were decided; with ``missed: all`` at most ``AT_ONCE``, and more the next time. One that a
        sweep of an earlier service may block waits until it is known whether that sweep runs still.
    """
    enabled = definition.schedule.enabled
    with writing(engine) as connection:
        row = _held(connection, definition.name)
        if row is None:
            connection.execute(insert(_schedules).values(name=definition.name, decided=now, **_settings(definition)))
            return []
        deciding = _Deciding(connection, definition, now, service)
        if is_as_defined(row, definition):
            return deciding.pending(row["decided"]) if enabled else []
        firings = deciding.rest(row, None if enabled else "the schedule was disabled")
        mine = update(_schedules).where(_schedules.c.name == definition.name)
        connection.execute(mine.values(decided=now, **_settings(definition)))
        return firings


def put_right(engine: Engine, definition: Definition, now: float) -> None:
    """A clock was wrong, and firings were decided that are to come: forget those of which nothing came. Those that
    became jobs have run, ahead of their time, and do not run again."""
    with writing(engine) as connection:
        row = _held(connection, definition.name)
        if row is None or row["decided"] <= now + AHEAD_S:
            return  # another service has just done so
        mine = _firings.c.schedule == definition.name
        connection.execute(delete(_firings).where(mine, _firings.c.due > now, _firings.c.job.is_(None)))
        connection.execute(update(_schedules).where(_schedules.c.name == definition.name).values(decided=now))


def retire(engine: Engine, definition: Definition, now: float, service: str | None = None) -> list[Firing]:
    """A schedule is gone: nothing comes of what is undecided. Should it come back, it fires from then on."""
    with writing(engine) as connection:
        row = _held(connection, definition.name)
        if row is None:
            return []
        firings = _Deciding(connection, definition, now, service).rest(row, "the schedule was removed")
        mine = update(_schedules).where(_schedules.c.name == definition.name)
        connection.execute(mine.values(decided=now, enabled=False))
        return firings


def fire_now(connection: Connection, definition: Definition, now: float, user: str | None = None) -> Job:
    """One more firing, besides those of the cron line: whatever its window, and after its sweep that runs still.

    Args:
        connection: A writing transaction.
        definition: The schedule.
        now: The time.
        user: Who asks; default: the schedule's user.
    """
    try:
        end = definition.window_end(now)
    except OutsideWindow:
        end = None
    return _submit(connection, definition, now, now, end, user)


class _Deciding:
    """One transaction's decisions about one schedule, whose row it holds."""

    def __init__(self, connection: Connection, definition: Definition, now: float, service: str | None) -> None:
        self._connection, self._definition, self._now, self._service = connection, definition, now, service

    def pending(self, decided: float) -> list[Firing]:
        """Decide all that are to be decided by now."""
        ready = takewhile(lambda each: each.ready <= self._now, _in_turn(self._definition, decided))
        at_once = AT_ONCE if self._definition.schedule.missed == "all" else None
        due = list(islice(ready, at_once))
        new = self._undecided(due, decided)
        firings = self._decide(new, may_wait=True)
        waits = len(firings) < len(new)
        if firings or (due and not waits):
            mine = update(_schedules).where(_schedules.c.name == self._definition.name)
            self._connection.execute(mine.values(decided=firings[-1].due if waits else due[-1].due))
        return firings

    def _undecided(self, due: list[_Pending], decided: float) -> list[_Pending]:
        """Leaves out those that a wrong clock has fired already."""
        asked = select(_firings.c.due).where(_firings.c.schedule == self._definition.name, _firings.c.due > decided)
        ahead = set(self._connection.execute(asked).scalars()) if due else set()
        return [each for each in due if each.due not in ahead]

    def rest(self, row: RowMapping, why_missed: str | None) -> list[Firing]:
        """Decide all that were due while the schedule was what its row says: run them, or miss them for a reason."""
        if not row["enabled"]:
            return []
        was = replace(self._definition.schedule, cron=row["cron"], timezone=row["timezone"])
        self._definition = replace(self._definition, schedule=was)
        due = list(takewhile(lambda each: each.due <= self._now, _in_turn(self._definition, row["decided"])))
        if why_missed is None:
            return self._decide(self._undecided(due, row["decided"]), may_wait=False)
        new = self._undecided(due, row["decided"])
        return self._written([self._firing(each, MISSED, why_missed) for each in new])

    def _decide(self, pending: list[_Pending], *, may_wait: bool) -> list[Firing]:
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
                job = _submit(self._connection, self._definition, each.due, self._now, each.end)
                unfinished.append(job)
                firings.append(self._firing(each, QUEUED, job=job.id))
        return self._written(firings)

    def _unfinished(self) -> list[Job]:
        """The schedule's sweeps that wait or run, as far as they matter to a firing."""
        if self._definition.schedule.overlap == "queue":
            return []
        lock(self._connection, CLAIMING)  # what waits now does not start before this is decided
        jobs.expire(self._connection, self._now)
        states = [jobs.QUEUED, jobs.RUNNING]
        return jobs.query(self._connection, states=states, schedule=self._definition.name)

    def _missed(self, each: _Pending, latest: float) -> str | None:
        schedule = self._definition.schedule
        if not each.may_start(self._now):
            return "no service was up in its window"
        if self._now - each.ready <= schedule.grace_s or schedule.missed == "all":
            return None
        if schedule.missed == "none":
            return "no service was up"
        return "no service was up, and a later one has come since" if each.due < latest else None

    def _blocked(self, unfinished: list[Job]) -> str | None:
        if self._definition.schedule.overlap != "skip" or not unfinished:
            return None
        job = unfinished[0]
        return f"{job.sweep} {'still runs' if job.state == jobs.RUNNING else 'still waits in the queue'}"

    def _may_have_ended(self, job: Job) -> bool:
        """Whether a sweep that is said to run was left behind by an earlier service, and nobody has looked yet."""
        asked = select(_services.c.started).where(_services.c.id == self._service)
        started: float | None = self._connection.execute(asked).scalar_one_or_none()
        if started is None or job.started is None or job.state != jobs.RUNNING:
            return False
        return job.started < started and self._now < started + SETTLED_AFTER_S

    def _stop(self, unfinished: list[Job], by: _Pending) -> None:
        for job in unfinished:
            if job.state == jobs.QUEUED:
                why = f"the firing of {self._definition.name} at {self._definition.shown(by.due)} takes its place"
                jobs.cancel(self._connection, job.id, self._now, why)
            else:
                jobs.request_stop(self._connection, job.id, self._now)

    def _firing(self, each: _Pending, outcome: str, reason: str | None = None, job: int | None = None) -> Firing:
        return Firing(schedule=self._definition.name, due=each.due, outcome=outcome, job=job, reason=reason)

    def _written(self, firings: list[Firing]) -> list[Firing]:
        rows = [{**asdict(each), "decided": self._now, "service": self._service} for each in firings]
        if rows:
            self._connection.execute(insert(_firings), rows)
        return firings


def _settings(definition: Definition) -> dict[str, str | bool]:
    """What says when a schedule fires."""
    schedule = definition.schedule
    return {"cron": schedule.cron, "timezone": schedule.timezone, "enabled": schedule.enabled}


def _held(connection: Connection, name: str) -> RowMapping | None:
    asked = select(_schedules).where(_schedules.c.name == name).with_for_update()  # SQLite: `writing` holds all
    return connection.execute(asked).mappings().one_or_none()


def _in_turn(definition: Definition, decided: float) -> Iterator[_Pending]:
    """Undecided firings in order. Where jitter would turn the order round, the later one waits."""
    ready = -math.inf
    for due in definition.line.after(decided):
        try:
            end = definition.window_end(due)
            ready = max(ready, definition.starts(due))
            yield _Pending(due, ready, end)
        except OutsideWindow as error:
            ready = max(ready, due)
            yield _Pending(due, ready, None, str(error))


def _submit(
    connection: Connection, definition: Definition, due: float, now: float, end: float | None, user: str | None = None
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
