"""Jobs: list queued, running and ended ones, change their order, and cancel them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse

from sweeps.provenance.redaction import redacted
from sweeps.service import subprocesses
from sweeps.service.api.depends import Before, InProject, Limit, Number, Offset, OfSchedule, Reads, Runs, User
from sweeps.service.api.response_documents import Body, Document, Jobs, Priority
from sweeps.service.queue import jobs
from sweeps.service.queue.jobs import JobDocument
from sweeps.texts.printable import printable

LOG_BYTES = 100_000
"""Maximum bytes of the end of a log."""

router = APIRouter(tags=["queue"])


class Outcome(Document):
    """Outcome of a job."""

    document: Any
    """The printed document, or null."""


class Order(Body):
    """New priority of a job."""

    priority: Priority
    """Priority; higher starts first."""


@router.get("/jobs")
def listed(
    operations: Reads,
    state: Annotated[list[jobs.State] | None, Query(description="Only jobs in these states.")] = None,
    user: User = None,
    project: InProject = None,
    schedule: OfSchedule = None,
    limit: Limit = 100,
    offset: Offset = 0,
    before: Before = None,
) -> Jobs:
    """Jobs, newest first; with only ``state=queued``, in the order of the queue. Get the next page with ``before``,
    which is as fast for the last page as for the first."""
    with operations.service.database.connect() as connection:
        found = jobs.query(
            connection,
            states=state or jobs.STATES,
            user=user,
            project=project,
            schedule=schedule,
            principal=operations.principal,
            limit=limit,
            offset=offset,
            before=before,
        )
    more = len(found) == limit and state != ["queued"]
    return Jobs(jobs=[JobDocument.of(job) for job in found], next=found[-1].id if more else None)


@router.get("/jobs/{number}")
def job(operations: Reads, number: Number) -> JobDocument:
    """A job."""
    return JobDocument.of(operations.job(number))


@router.patch("/jobs/{number}")
def reorder(operations: Runs, number: Number, body: Order) -> JobDocument:
    """Change the priority of a queued job."""
    return JobDocument.of(operations.set_priority(number, body.priority))


@router.post("/jobs/{number}/cancel")
def cancel(operations: Runs, number: Number) -> JobDocument:
    """Cancel a queued job, or stop a running one."""
    return JobDocument.of(operations.cancel(number))


@router.get("/jobs/{number}/outcome")
def outcome(operations: Reads, number: Number) -> Outcome:
    """Document that a job's command line has printed with ``--json``; null if it was killed, has not ended, or ran on
    another machine."""
    found = subprocesses.outcome(operations.runner.control_folder(operations.job(number)))
    return Outcome(document=found.document if found is not None else None)


@router.get("/jobs/{number}/log", response_class=PlainTextResponse)
def log(operations: Reads, number: Number) -> PlainTextResponse:
    """End of the log of a job's process; empty if it has not begun, or runs on another machine."""
    path = operations.runner.log(operations.job(number))
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - LOG_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        text = ""
    return PlainTextResponse(redacted(printable(text)))
