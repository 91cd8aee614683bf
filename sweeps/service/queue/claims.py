"""Running jobs: which service claims a job, and which one takes over the jobs of a failed service or machine. Functions
take a connection of ``database.engine.writing``, like those of ``jobs``."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, func, select

from sweeps.config.service import Queue
from sweeps.service.database import tables
from sweeps.service.database.engine import CLAIMING, lock
from sweeps.service.queue import jobs
from sweeps.service.queue.job_requests import Request
from sweeps.service.queue.jobs import Job

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


def orphans_on(connection: Connection, host: str, silent_since: float) -> list[Job]:
    """Return the running jobs of a host whose service has died."""
    return jobs.fetch(connection, _unserved(silent_since).where(_jobs.c.host == host))


def take_over(connection: Connection, service: str, host: str, silent_since: float) -> list[Job]:
    """Assign the jobs of a host whose service has died to this service."""
    lock(connection, CLAIMING)
    return [jobs.set_values(connection, job.id, service=service) for job in orphans_on(connection, host, silent_since)]


def orphans_elsewhere(connection: Connection, host: str, silent_since: float) -> list[Job]:
    """Return the running jobs of other hosts whose service has died."""
    return jobs.fetch(connection, _unserved(silent_since).where(_jobs.c.host != host))


def adopt(connection: Connection, job: Job, service: str, host: str) -> Job | None:
    """Assign a job of a failed machine to this service and host; None if another service has just done so."""
    lock(connection, CLAIMING)
    current = jobs.find(connection, job.id)
    claimed = (jobs.RUNNING, job.service, job.host, job.attempts)
    if (current.state, current.service, current.host, current.attempts) != claimed:
        return None
    return jobs.set_values(connection, job.id, service=service, host=host, pid=None)


def running_on(connection: Connection, service: str) -> list[Job]:
    """Return the running jobs of a service."""
    return jobs.fetch(connection, select(_jobs).where(_jobs.c.state == jobs.RUNNING, _jobs.c.service == service))


def begin_attempt(connection: Connection, job: Job, service: str, request: Request) -> Job | None:
    """Record that a job's driver is about to start, with its final request; None if another service has taken the job
    over."""
    current = jobs.find(connection, job.id)
    if not _is_held(current, service):
        return None
    return jobs.set_values(connection, job.id, attempts=current.attempts + 1, request=jobs.document_of(request))


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
    """Record a job's final state; None if another service has taken the job over.

    Args:
        connection: A writing transaction.
        job: The job.
        service: This service.
        state: The final state.
        now: Current time.
        error: Reason for a failure.
        has_sweep: Whether the job may have made the sweep of this name; otherwise the name is free again, and the job's
            user may not see that sweep.
    """
    if not _is_held(jobs.find(connection, job.id), service):
        return None
    freed = {} if has_sweep and state != "cancelled" else {"makes": None}  # its sweep never began, so free the name
    return jobs.set_values(connection, job.id, state=state, ended=now, error=error, **freed)


def _unserved(silent_since: float) -> Select[Any]:
    alive = select(tables.services.c.id).where(tables.services.c.beat >= silent_since)
    return select(_jobs).where(_jobs.c.state == jobs.RUNNING, _jobs.c.service.not_in(alive))


def _is_held(job: Job, service: str) -> bool:
    return job.state == jobs.RUNNING and job.service == service
