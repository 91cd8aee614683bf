"""Jobs: sweeps that were submitted, by people, by the API and by schedules, and what became of them. All SQL on them
is here; writes take a connection of ``database.writing``, so that they can be part of a larger transaction.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from sqlalchemy import Connection, RowMapping, Select, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from sweeps.config.service import Queue
from sweeps.errors import UnknownName, UserError
from sweeps.service.auth.principal import Principal, visible
from sweeps.service.database import tables
from sweeps.service.database.engine import CLAIMING, lock
from sweeps.service.queue.job_query import newest
from sweeps.service.queue.requests import Reproduce, Request, Retrain, Run, read_request

State = Literal["queued", "running", "finished", "stopped", "failed", "cancelled"]
QUEUED, RUNNING = "queued", "running"
ENDED = ("finished", "stopped", "failed", "cancelled")
"""``finished``, ``stopped`` and ``failed``: as its sweep; ``cancelled``: before it started."""
STATES = (QUEUED, RUNNING, *ENDED)
GO_ON = ("resume", "extend")
"""Verbs that make no sweep of their own."""
NAMES_AT_ONCE = 500
"""Maximum number of sweeps in one query."""
LONGEST_NAME = 120
HIGHEST_PRIORITY = 1000

_jobs = tables.jobs


@dataclass(frozen=True, kw_only=True)
class Job:
    """A submitted sweep. Times are seconds since 1970 (UTC)."""

    id: int
    verb: str
    sweep: str
    """Name of the sweep that it makes or goes on with."""
    request: dict[str, Any]
    """See ``sweeps.service.queue.requests``."""
    user: str
    project: str
    priority: int
    """The higher starts first."""
    state: str
    submitted: float
    started: float | None
    ended: float | None
    end_by: float | None
    """When it must have ended."""
    schedule: str | None
    due: float | None
    """The firing of that schedule which it is."""
    service: str | None
    """Which runs it."""
    host: str | None
    pid: int | None
    """Of its driver."""
    attempts: int
    """How often its driver was started."""
    stop_asked: float | None
    """When somebody wanted its end."""
    error: str | None
    """Why it failed or did not start."""

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def parsed_request(self) -> Request:
        """The request, typed."""
        return read_request(self.request)

    def as_json(self) -> dict[str, Any]:
        """For the API and ``--json``."""
        hidden = ("service", "host", "pid")
        return {name: value for name, value in self.__dict__.items() if name not in hidden}


def submit(  # noqa: PLR0913 - each is a column
    connection: Connection,
    request: Request,
    sweep: str,
    *,
    user: str,
    project: str,
    now: float,
    priority: int = 0,
    end_by: float | None = None,
    schedule: str | None = None,
    due: float | None = None,
    most_waiting: int | None = None,
) -> Job:
    """Put a sweep into the queue.

    Args:
        connection: A writing transaction.
        request: What is asked, one of ``sweeps.service.queue.requests``.
        sweep: The sweep's name. Where the request makes one and names none, a number is added to a name that is taken.
        user: Who asks.
        project: For whom.
        now: The time.
        priority: The higher starts first.
        end_by: When it must have ended.
        schedule: Whose firing it is.
        due: And which.
        most_waiting: Jobs of the user that may wait.

    Raises:
        UserError: The name is another sweep's, or too many of the user's wait.
    """
    if most_waiting is not None and _count(connection, _jobs.c.user == user, _jobs.c.state == QUEUED) >= most_waiting:
        raise UserError(
            f"{user} has {most_waiting} sweeps in the queue, and no more may wait (queue.waiting_per_user); cancel "
            "some, or submit this when they have started"
        )
    values: dict[str, Any] = {
        "verb": request.verb,
        "user": user,
        "project": project,
        "priority": priority,
        "state": QUEUED,
        "submitted": now,
        "end_by": end_by,
        "schedule": schedule,
        "due": due,
    }
    if not isinstance(request, Run | Retrain | Reproduce):
        return _insert(connection, {**values, "sweep": sweep, "request": _document(request)})
    for number in itertools.count(1):
        name = sweep if number == 1 else f"{sweep[: LONGEST_NAME - 8]}-{number}"
        named = request.model_copy(update={"name": name})
        try:
            with connection.begin_nested():
                return _insert(connection, {**values, "sweep": name, "makes": name, "request": _document(named)})
        except IntegrityError:
            if request.name is not None:
                raise UserError(f"there is a sweep {name} already; choose another --name") from None
    raise AssertionError


def find(connection: Connection, number: int) -> Job:
    """
    Raises:
        UnknownName: There is no such job.
    """
    row = connection.execute(select(_jobs).where(_jobs.c.id == number)).mappings().one_or_none()
    if row is None:
        raise UnknownName(f"there is no job {number}")
    return _job(row)


def find_visible(connection: Connection, principal: Principal, number: int) -> Job:
    """A job that a principal may see.

    Raises:
        UnknownName: There is no such job for the principal.
    """
    job = find(connection, number)
    if not visible(principal, job):
        raise UnknownName(f"there is no job {number}")
    return job


def of_sweep(connection: Connection, sweep: str) -> list[Job]:
    """Those that have made a sweep, or gone on with it, the newest first."""
    return _all(connection, select(_jobs).where(_jobs.c.sweep == sweep).order_by(_jobs.c.id.desc()))


def of_current_sweep(connection: Connection, sweep: str) -> list[Job]:
    """Those of the sweep that has the name now, the newest first: the job that made it and what came after. A name
    whose job was cancelled is free again, and that job is no part of what others make under it."""
    made_by = creator(connection, sweep)
    mine = _jobs.c.makes.is_not(None) | _jobs.c.verb.in_(GO_ON)
    since = 0 if made_by is None else made_by.id
    asked = select(_jobs).where(_jobs.c.sweep == sweep, _jobs.c.id >= since, mine)
    return _all(connection, asked.order_by(_jobs.c.id.desc()))


def creator(connection: Connection, sweep: str) -> Job | None:
    """Which made a sweep: whose the sweep is. None if none did."""
    row = connection.execute(select(_jobs).where(_jobs.c.makes == sweep)).mappings().one_or_none()
    return None if row is None else _job(row)


def creators(connection: Connection, sweeps: Sequence[str]) -> dict[str, Job]:
    """The same of several sweeps, by name."""
    found: dict[str, Job] = {}
    for start in range(0, len(sweeps), NAMES_AT_ONCE):
        named = _jobs.c.makes.in_(sweeps[start : start + NAMES_AT_ONCE])
        found |= {job.sweep: job for job in _all(connection, select(_jobs).where(named))}
    return found


def recent(connection: Connection, ended: int) -> list[Job]:
    """All jobs that wait or run, and so many of the newest that have ended."""
    live = query(connection, states=(QUEUED, RUNNING))
    return [*live, *query(connection, states=ENDED, limit=ended)]


def query(
    connection: Connection,
    *,
    states: Sequence[str] = STATES,
    user: str | None = None,
    project: str | None = None,
    schedule: str | None = None,
    principal: Principal | None = None,
    limit: int | None = None,
    offset: int = 0,
    before: int | None = None,
) -> list[Job]:
    """Jobs, the newest first; with ``states=["queued"]`` in the order of the queue.

    Args:
        connection: Any.
        states: In one of these states.
        user: Of this user alone.
        project: Of this project.
        schedule: Firings of this schedule.
        principal: Only those that there are for them; see ``visible``.
        limit: How many at most.
        offset: How many to leave out first; each of them is read, too.
        before: Only those with a lower number: the next page after a job, however far down it is.
    """
    in_queue = tuple(states) == (QUEUED,)
    named = {"user": user, "project": project, "schedule": schedule}
    filters = {name: value for name, value in named.items() if value is not None}
    if limit is not None and not in_queue:
        numbers = newest(states, filters=filters, principal=principal, before=before, most=limit + offset)
        page = numbers.limit(limit).offset(offset).subquery()
        return _all(connection, select(_jobs).where(_jobs.c.id.in_(select(page.c.id))).order_by(_jobs.c.id.desc()))
    asked = select(_jobs).where(_jobs.c.state.in_(states), *(_jobs.c[name] == value for name, value in filters.items()))
    if principal is not None and principal.role != "admin":
        asked = asked.where(or_(_jobs.c.user == principal.user, _jobs.c.project.in_(principal.projects)))
    if before is not None:
        asked = asked.where(_jobs.c.id < before)
    asked = asked.order_by(_jobs.c.priority.desc(), _jobs.c.id) if in_queue else asked.order_by(_jobs.c.id.desc())
    return _all(connection, asked.limit(limit).offset(offset))


def cancel(connection: Connection, number: int, now: float, why: str | None = None) -> Job:
    """Take a job out of the queue.

    Raises:
        UserError: It does not wait.
    """
    job = find(connection, number)
    if job.state != QUEUED:
        raise UserError(f"job {number} ({job.sweep}) does not wait: it is {job.state}")
    return _set(connection, number, state="cancelled", ended=now, error=why, makes=None)


def expire(connection: Connection, now: float) -> None:
    """Take those out of the queue that must have ended by now."""
    late = update(_jobs).where(_jobs.c.state == QUEUED, _jobs.c.end_by <= now)
    why = "its time was over before it could start"
    connection.execute(late.values(state="cancelled", ended=now, error=why, makes=None))


def prioritise(connection: Connection, number: int, priority: int) -> Job:
    """Let a waiting job start earlier or later.

    Raises:
        UserError: It does not wait.
    """
    job = find(connection, number)
    if job.state != QUEUED:
        raise UserError(f"job {number} ({job.sweep}) does not wait: it is {job.state}")
    return _set(connection, number, priority=priority)


def request_stop(connection: Connection, number: int, now: float) -> Job:
    """Somebody wants the end of a job: one that waits is cancelled, and one that runs is not started again."""
    job = find(connection, number)
    if job.state == QUEUED:
        return cancel(connection, number, now)
    return _set(connection, number, stop_asked=now) if job.state == RUNNING and job.stop_asked is None else job


def claim(connection: Connection, limits: Queue, service: str, host: str, now: float) -> Job | None:
    """Take the job that is to start next, if one may: it is then this service's.

    The highest priority goes first; among equals whose user has the fewest running, then whose user's last start is
    longest ago, then who came first.
    """
    lock(connection, CLAIMING)
    expire(connection, now)
    running = _all(connection, select(_jobs).where(_jobs.c.state == RUNNING))
    if sum(job.host == host for job in running) >= limits.running:
        return None
    waiting = _all(connection, select(_jobs).where(_jobs.c.state == QUEUED))
    last_start = {user: _last_start(connection, user) for user in {job.user for job in waiting}}
    busy = {job.sweep for job in running}
    fired = {job.schedule for job in running if job.schedule is not None}

    def of_user(job: Job) -> int:
        return sum(each.user == job.user for each in running)

    for job in sorted(waiting, key=lambda job: (-job.priority, of_user(job), last_start[job.user], job.id)):
        of_project = sum(each.project == job.project for each in running)
        if (
            job.sweep in busy
            or job.schedule in fired  # two sweeps of one schedule never run at once
            or (limits.per_user is not None and of_user(job) >= limits.per_user)
            or (limits.per_project is not None and of_project >= limits.per_project)
        ):
            continue
        return _set(connection, job.id, state=RUNNING, started=now, service=service, host=host, pid=None, attempts=0)
    return None


def _last_start(connection: Connection, user: str) -> float:
    asked = select(func.max(_jobs.c.started)).where(_jobs.c.user == user)
    return connection.execute(asked).scalar_one() or 0.0


def orphans_on(connection: Connection, host: str, silent_since: float) -> list[Job]:
    """Jobs on this host whose service has died."""
    return _all(connection, _unserved(silent_since).where(_jobs.c.host == host))


def take_over(connection: Connection, service: str, host: str, silent_since: float) -> list[Job]:
    """Make them this service's own."""
    lock(connection, CLAIMING)
    return [_set(connection, job.id, service=service) for job in orphans_on(connection, host, silent_since)]


def orphans_elsewhere(connection: Connection, host: str, silent_since: float) -> list[Job]:
    """Jobs on other hosts, whose service has died there."""
    return _all(connection, _unserved(silent_since).where(_jobs.c.host != host))


def adopt(connection: Connection, job: Job, service: str, host: str) -> Job | None:
    """Make a job of a lost machine this service's own, on this host; None if another service has just done so."""
    lock(connection, CLAIMING)
    now = find(connection, job.id)
    if now.state != RUNNING or (now.service, now.host, now.attempts) != (job.service, job.host, job.attempts):
        return None
    return _set(connection, job.id, service=service, host=host, pid=None)


def running_on(connection: Connection, service: str) -> list[Job]:
    """Those that a service runs."""
    return _all(connection, select(_jobs).where(_jobs.c.state == RUNNING, _jobs.c.service == service))


def begin_attempt(connection: Connection, job: Job, service: str, request: Request) -> Job | None:
    """Note that a job's driver is about to be started, and what it is to do; None if another service has taken the job
    over."""
    if not _is_held(find(connection, job.id), service):
        return None
    return _set(connection, job.id, attempts=job.attempts + 1, request=_document(request))


def set_driver(connection: Connection, job: Job, pid: int) -> Job:
    """Note the process of a job's driver."""
    return _set(connection, job.id, pid=pid)


def end(connection: Connection, job: Job, service: str, state: str, now: float, error: str | None = None) -> Job | None:
    """Note how a job has ended; None if another service has taken it over, which will note that."""
    if not _is_held(find(connection, job.id), service):
        return None
    return _set(connection, job.id, state=state, ended=now, error=error)


def _unserved(silent_since: float) -> Select[Any]:
    alive = select(tables.services.c.id).where(tables.services.c.beat >= silent_since)
    return select(_jobs).where(_jobs.c.state == RUNNING, _jobs.c.service.not_in(alive))


def _is_held(job: Job, service: str) -> bool:
    return job.state == RUNNING and job.service == service


def _insert(connection: Connection, values: Mapping[str, Any]) -> Job:
    made = connection.execute(insert(_jobs).values(**values))
    assert made.inserted_primary_key is not None
    return find(connection, made.inserted_primary_key[0])


def _set(connection: Connection, number: int, **values: Any) -> Job:
    connection.execute(update(_jobs).where(_jobs.c.id == number).values(**values))
    return find(connection, number)


def _count(connection: Connection, *conditions: Any) -> int:
    return int(connection.execute(select(func.count()).select_from(_jobs).where(*conditions)).scalar_one())


def _all(connection: Connection, asked: Select[Any]) -> list[Job]:
    return [_job(row) for row in connection.execute(asked).mappings()]


def _job(row: RowMapping) -> Job:
    return Job(**{each.name: row[each.name] for each in fields(Job)})


def _document(request: Request) -> dict[str, Any]:
    document: dict[str, Any] = request.model_dump(mode="json", by_alias=True, exclude_none=True)
    return document
