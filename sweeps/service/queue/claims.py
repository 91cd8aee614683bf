"""Running jobs: which service claims a job, and which one takes over the jobs of a failed service or machine. Functions
take a connection of ``database.engine.writing``, like those of ``jobs``."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select, update

from sweeps.config.service import Queue
from sweeps.service.database import tables
from sweeps.service.database.engine import CLAIMING, lock
from sweeps.service.queue import jobs
from sweeps.service.queue.job_requests import Request
from sweeps.service.queue.jobs import Job
from sweeps.tracking.mlflow_characters import storable

_jobs = tables.jobs


def claim(connection: Connection, limits: Queue, service: str, host: str, now: float) -> Job | None:
    """Claim the next job for this service; None if no job may start.

    Jobs are ordered by priority, then by the number of running jobs of their user, then by the user's last start, then
    by submission.
    """
    lock(connection, CLAIMING)
    jobs.expire(connection, now)
    running = jobs.fetch(connection, select(_jobs).where(_jobs.c.state == jobs.RUNNING))
    if sum(job.host == host for job in running) >= limits.running:
        return None
    waiting = jobs.fetch(connection, select(_jobs).where(_jobs.c.state == jobs.QUEUED))
    last_start = {user: _last_start(connection, user) for user in {job.user for job in waiting}}
    busy = {job.sweep for job in running}
    schedules = jobs.schedules_of_sweeps(connection, [*running, *waiting])
    fired = {schedules[job.id] for job in running} - {None}

    def of_user(job: Job) -> int:
        return sum(each.user == job.user for each in running)

    for job in sorted(waiting, key=lambda job: (-job.priority, of_user(job), last_start[job.user], job.id)):
        of_project = sum(each.project == job.project for each in running)
        if (
            job.sweep in busy
            or schedules[job.id] in fired  # two sweeps of one schedule never run at once
            or (limits.per_user is not None and of_user(job) >= limits.per_user)
            or (limits.per_project is not None and of_project >= limits.per_project)
        ):
            continue
        return jobs.set_values(
            connection,
            job.id,
            state=jobs.RUNNING,
            started=now,
            end_by=_end_by(job, limits, now),
            service=service,
            host=host,
            pid=None,
            attempts=0,
        )
    return None


def _end_by(job: Job, limits: Queue, now: float) -> float | None:
    """Return the time at which a job that starts now is stopped: by its schedule's window, the operator's limit, or its
    own."""
    hours = [each for each in (limits.max_hours, job.request.get("max_hours")) if each is not None]
    times = [now + 3600 * each for each in hours] + ([] if job.end_by is None else [job.end_by])
    return min(times, default=None)


def _last_start(connection: Connection, user: str) -> float:
    statement = select(func.max(_jobs.c.started)).where(_jobs.c.user == user)
    return connection.execute(statement).scalar_one() or 0.0


def orphans(connection: Connection, silent_since: float) -> list[Job]:
    """Return the running jobs whose service has died."""
    alive = select(tables.services.c.id).where(tables.services.c.beat >= silent_since)
    return jobs.fetch(connection, select(_jobs).where(_jobs.c.state == jobs.RUNNING, _jobs.c.service.not_in(alive)))


def take_over(connection: Connection, service: str, host: str, silent_since: float) -> list[Job]:
    """Assign the jobs of a host whose service has died to this service."""
    lock(connection, CLAIMING)
    dead = [job.id for job in orphans(connection, silent_since) if job.host == host]
    return [jobs.set_values(connection, number, service=service) for number in dead]


def adopt(connection: Connection, job: Job, service: str, host: str) -> Job | None:
    """Assign a job of a failed machine to this service and host; None if another service has just done so."""
    lock(connection, CLAIMING)
    unchanged = (_jobs.c.host == job.host, _jobs.c.attempts == job.attempts)
    return _set_held(connection, job, str(job.service), *unchanged, service=service, host=host, pid=None)


def running_on(connection: Connection, service: str) -> list[Job]:
    return jobs.fetch(connection, select(_jobs).where(_jobs.c.state == jobs.RUNNING, _jobs.c.service == service))


def begin_attempt(connection: Connection, job: Job, service: str, request: Request) -> Job | None:
    """Record that a job's driver is about to start, with its final request; None if another service has taken the job
    over."""
    attempts = _jobs.c.attempts + 1
    return _set_held(connection, job, service, attempts=attempts, request=jobs.document_of(request))


def end(
    connection: Connection,
    job: Job,
    service: str,
    state: str,
    now: float,
    error: str | None = None,
    *,
    has_sweep: bool = True,
) -> Job | None:
    """Record a job's final state, and the reason for a failure; None if another service has taken the job over.

    Unless ``has_sweep``, the job has not made the sweep of this name: the name is free again, and the job's user may
    not see that sweep.
    """
    freed = {} if has_sweep and state != "cancelled" else {"makes": None}  # its sweep never began, so free the name
    error = None if error is None else storable(error)
    return _set_held(connection, job, service, state=state, ended=now, error=error, **freed)


def _set_held(
    connection: Connection, job: Job, holder: str, *conditions: ColumnElement[bool], **values: Any
) -> Job | None:
    """Set columns of a job that a service runs; None if it does not, or if the job does not meet the conditions."""
    is_held = (_jobs.c.id == job.id, _jobs.c.state == jobs.RUNNING, _jobs.c.service == holder)
    changed = connection.execute(update(_jobs).where(*is_held, *conditions).values(**values)).rowcount
    return jobs.find(connection, job.id) if changed else None
