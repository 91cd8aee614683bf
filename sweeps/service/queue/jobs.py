"""Jobs: sweeps submitted by the API, the web pages and schedules, and their states. The SQL on jobs is here, except the
operations of services on running jobs (``claims``). Functions that write take a connection of
``database.engine.writing``, so that they can be part of a larger transaction."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    RowMapping,
    Select,
    func,
    insert,
    or_,
    select,
    true,
    union_all,
    update,
)
from sqlalchemy.exc import IntegrityError

from sweeps.config.sweep_name import with_ending
from sweeps.errors import UnknownName, UserError
from sweeps.provenance.redaction import redacted
from sweeps.service.auth.permissions import Principal, visible
from sweeps.service.database import tables
from sweeps.service.database.engine import CLAIMING, lock
from sweeps.service.queue.job_requests import Reproduce, Request, Retrain, Run, read_request
from sweeps.texts.wording import counted

State = Literal["queued", "running", "finished", "stopped", "failed", "cancelled"]
QUEUED, RUNNING = "queued", "running"
ENDED = ("finished", "stopped", "failed", "cancelled")
"""Final states: ``finished``, ``stopped`` and ``failed`` are those of the sweep; a ``cancelled`` job never started."""
STATES = (QUEUED, RUNNING, *ENDED)
CONTINUING = ("resume", "extend")
"""Verbs that continue an existing sweep."""
MAX_NAMES = 500
"""Maximum number of names in one query."""
HIGHEST_PRIORITY = 1000

_jobs = tables.jobs


class JobFields(BaseModel):
    """Fields that a job and its document have. Times are seconds since 1970 (UTC)."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    id: int
    """Number of the job."""
    verb: str
    """Verb of the command line: run, resume, extend, retrain or reproduce."""
    sweep: str
    """Name of the sweep that the job makes or continues."""
    request: dict[str, Any]
    """The request; the API shows it with secrets redacted."""
    user: str
    """User who submitted the job."""
    project: str
    """Project of the sweep."""
    priority: int
    """Priority; higher starts first."""
    state: str
    """queued, running, finished, stopped, failed or cancelled."""
    submitted: float
    """Time of the submission."""
    started: float | None
    """Time at which the job's process was started."""
    ended: float | None
    """Time at which the job ended."""
    end_by: float | None
    """Time at which the job is stopped."""
    schedule: str | None
    """Schedule that submitted the job."""
    due: float | None
    """Time of the schedule's firing."""
    attempts: int
    """Number of times that the job's process was started."""
    stop_asked: float | None
    """Time of the request to stop the job."""
    error: str | None
    """Reason for the job's failure, or for not starting."""


class JobDocument(JobFields):
    """A job. Times are seconds since 1970 (UTC)."""

    @classmethod
    def of(cls, job: Job) -> JobDocument:
        """Return the document of a job, with secrets in overrides and error messages redacted."""
        return cls.model_validate(_redact(job.as_json()))


class Job(JobFields):
    """A submitted sweep: its row, with the unredacted request."""

    service: str | None
    """Id of the service that runs the job."""
    host: str | None
    pid: int | None
    """Process id of the driver."""

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def parsed_request(self) -> Request:
        return read_request(self.request)

    def as_json(self) -> dict[str, Any]:
        """Return the document for ``--json``."""
        return {name: getattr(self, name) for name in JobFields.model_fields}


def check_waiting(connection: Connection, user: str, most: int | None) -> None:
    """Raise ``UserError`` if a user already has the maximum number of queued jobs."""
    waiting = select(func.count()).where(_jobs.c.user == user, _jobs.c.state == QUEUED)
    if most is not None and connection.execute(waiting).scalar_one() >= most:
        raise UserError(
            f"{user} has {counted(most, 'sweep')} in the queue, the maximum (queue.waiting_per_user); cancel some, or "
            "submit this when they have started"
        )


def submit(
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
) -> Job:
    """Put a sweep into the queue; see ``JobFields`` for the arguments. If the request makes a sweep and does not name
    it, a number is added to a taken name.

    Raises:
        UserError: The name is taken.
    """
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
        return _insert(connection, {**values, "sweep": sweep, "request": document_of(request)})
    for number in itertools.count(1):
        name = sweep if number == 1 else with_ending(sweep, f"-{number}")
        named = request.model_copy(update={"name": name})
        try:
            with connection.begin_nested():
                return _insert(connection, {**values, "sweep": name, "makes": name, "request": document_of(named)})
        except IntegrityError:
            if request.name is not None:
                raise UserError(f"a sweep {name} already exists; choose another --name") from None
    raise AssertionError


def find(connection: Connection, number: int) -> Job:
    """Return a job, or raise ``UnknownName``."""
    row = connection.execute(select(_jobs).where(_jobs.c.id == number)).mappings().one_or_none()
    if row is None:
        raise UnknownName(f"there is no job {number}")
    return _job(row)


def find_visible(connection: Connection, principal: Principal, number: int) -> Job:
    """Return a job that a principal may see, or raise ``UnknownName``."""
    job = find(connection, number)
    if not visible(principal, job):
        raise UnknownName(f"there is no job {number}")
    return job


def of_sweep(connection: Connection, sweep: str) -> list[Job]:
    """Return the jobs that made or continued a sweep, newest first."""
    return fetch(connection, select(_jobs).where(_jobs.c.sweep == sweep).order_by(_jobs.c.id.desc()))


def of_current_sweep(connection: Connection, sweep: str) -> list[Job]:
    """Return the jobs of the current sweep with this name, newest first: the job that made it and later ones. The name
    of a cancelled job is free again; such a job does not belong to a later sweep of the same name."""
    made_by = creator(connection, sweep)
    mine = _jobs.c.makes.is_not(None) | _jobs.c.verb.in_(CONTINUING)
    since = 0 if made_by is None else made_by.id
    statement = select(_jobs).where(_jobs.c.sweep == sweep, _jobs.c.id >= since, mine)
    return fetch(connection, statement.order_by(_jobs.c.id.desc()))


def open_jobs(connection: Connection, sweep: str) -> list[Job]:
    """Return the queued and running jobs of the current sweep with this name, newest first."""
    lock(connection, CLAIMING)  # otherwise two transactions could both find none
    return [job for job in of_current_sweep(connection, sweep) if not job.has_ended]


def creator(connection: Connection, sweep: str) -> Job | None:
    """Return the job that made a sweep and thus identifies its owner; None if no job did."""
    return creators(connection, [sweep]).get(sweep)


def creators(connection: Connection, sweeps: Sequence[str]) -> dict[str, Job]:
    """Return the job that made each sweep of a list, by the sweep's name."""
    found: dict[str, Job] = {}
    for start in range(0, len(sweeps), MAX_NAMES):
        named = _jobs.c.makes.in_(sweeps[start : start + MAX_NAMES])
        found |= {job.sweep: job for job in fetch(connection, select(_jobs).where(named))}
    return found


def schedules_of_sweeps(connection: Connection, found: Sequence[Job | Row[Any]]) -> dict[int, str | None]:
    """Return the schedule of each job's sweep, by the job's id; a job that continues a sweep does not name it."""
    makers = creators(connection, [job.sweep for job in found if job.verb in CONTINUING])
    return {job.id: makers.get(job.sweep, job).schedule for job in found}


def recent(connection: Connection, ended: int) -> list[Job]:
    """Return all queued and running jobs, and the newest ended ones, at most ``ended``."""
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
    """Return jobs, newest first; with ``states=["queued"]`` in the order of the queue.

    They have the given user, project and schedule, and are ``visible`` to the principal; None: any. Jobs that
    ``offset`` skips are read, too; ``before`` selects those with a lower id, for the next page, and is fast however far
    down the page is.
    """
    in_queue = tuple(states) == (QUEUED,)
    named = {"user": user, "project": project, "schedule": schedule}
    filters = {name: value for name, value in named.items() if value is not None}
    if limit is not None and not in_queue:
        numbers = _newest(states, filters=filters, principal=principal, before=before, most=limit + offset)
        page = numbers.limit(limit).offset(offset).subquery()
        return fetch(connection, select(_jobs).where(_jobs.c.id.in_(select(page.c.id))).order_by(_jobs.c.id.desc()))
    filtered = (_jobs.c[name] == value for name, value in filters.items())
    statement = select(_jobs).where(_jobs.c.state.in_(states), *filtered, seen_by(principal))
    if before is not None:
        statement = statement.where(_jobs.c.id < before)
    order = (_jobs.c.priority.desc(), _jobs.c.id) if in_queue else (_jobs.c.id.desc(),)
    return fetch(connection, statement.order_by(*order).limit(limit).offset(offset))


def seen_by(principal: Principal | None) -> ColumnElement[bool]:
    """Return the SQL condition for the jobs that a principal may see, as in ``visible``; no condition for None."""
    if principal is None or principal.role == "admin":
        return true()
    return or_(_jobs.c.user == principal.user, _jobs.c.project.in_(principal.projects))


def _newest(
    states: Sequence[str],
    *,
    filters: dict[str, str],
    principal: Principal | None,
    before: int | None,
    most: int,
) -> Select[Any]:
    """Return a query for the ids of the newest jobs, newest first: those visible to the principal, with these values of
    ``user``, ``project`` and ``schedule``, and with ids below ``before``. It has one subquery for each combination of
    filters, each answered by an index, and so reads no more of hundreds of thousands of rows than it returns."""
    rest = [_jobs.c[name] == value for name, value in filters.items()]
    if before is not None:
        rest.append(_jobs.c.id < before)
    kinds: list[list[ColumnElement[bool]]] = [[_jobs.c.state == state, *rest] for state in states]
    if principal is not None and principal.role != "admin":
        whose = [_jobs.c.user == principal.user, *(_jobs.c.project == project for project in principal.projects)]
        kinds = [[one, *kind] for kind in kinds for one in whose]
    parts = [
        select(select(_jobs.c.id).where(*kind).order_by(_jobs.c.id.desc()).limit(most).subquery().c.id)
        for kind in kinds
    ]
    found = union_all(*parts).subquery()
    return select(found.c.id).distinct().order_by(found.c.id.desc()).limit(most)


def cancel(connection: Connection, number: int, now: float, reason: str | None = None) -> Job:
    """Cancel a job, or raise ``UserError`` if it is not queued."""
    lock(connection, CLAIMING)  # otherwise a service that has just read it as queued would still start it
    _check_queued(connection, number)
    return set_values(connection, number, state="cancelled", ended=now, error=reason, makes=None)


def expire(connection: Connection, now: float) -> None:
    """Cancel the queued jobs whose deadline has passed."""
    overdue = update(_jobs).where(_jobs.c.state == QUEUED, _jobs.c.end_by <= now)
    reason = "its deadline passed before it could start"
    connection.execute(overdue.values(state="cancelled", ended=now, error=reason, makes=None))


def prioritise(connection: Connection, number: int, priority: int) -> Job:
    """Change the priority of a job, or raise ``UserError`` if it is not queued."""
    _check_queued(connection, number)
    return set_values(connection, number, priority=priority)


def request_stop(connection: Connection, number: int, now: float) -> Job:
    """Cancel a queued job, or record that a running one must be stopped and not restarted."""
    lock(connection, CLAIMING)
    job = find(connection, number)
    if job.state == QUEUED:
        return cancel(connection, number, now)
    return set_values(connection, number, stop_asked=now) if job.state == RUNNING and job.stop_asked is None else job


def _check_queued(connection: Connection, number: int) -> None:
    job = find(connection, number)
    if job.state != QUEUED:
        raise UserError(f"job {number} ({job.sweep}) is not queued: it is {job.state}")


def _insert(connection: Connection, values: Mapping[str, Any]) -> Job:
    made = connection.execute(insert(_jobs).values(**values))
    assert made.inserted_primary_key is not None
    return find(connection, made.inserted_primary_key[0])


def set_values(connection: Connection, number: int, **values: Any) -> Job:
    connection.execute(update(_jobs).where(_jobs.c.id == number).values(**values))
    return find(connection, number)


def fetch(connection: Connection, statement: Select[Any]) -> list[Job]:
    """Return the jobs of a query on their table."""
    return [_job(row) for row in connection.execute(statement).mappings()]


def _job(row: RowMapping) -> Job:
    return Job.model_construct(**{name: row[name] for name in Job.model_fields})


def document_of(request: Request) -> dict[str, Any]:
    """Return a request as JSON, as stored with a job."""
    return request.model_dump(mode="json", by_alias=True, exclude_none=True)


def _redact(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _redact(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_redact(each) for each in value]
    return redacted(value) if isinstance(value, str) else value
