"""Pages of the sweeps, the queue and, for admins, the audit log. Sweeps come from cached records, so that the pages
work while the store cannot be reached."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response

from sweeps.errors import UnknownName
from sweeps.report.report_folder import existing_report
from sweeps.service.api import results
from sweeps.service.api.administration import AuditPosition, AuditWords
from sweeps.service.auth.auth import admin
from sweeps.service.auth.permissions import LOCAL
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.figures import SweepChoices, figures_view
from sweeps.service.web.pages import ReaderVisit
from sweeps.service.web.paging import ROWS, page_of
from sweeps.service.web.sweep_rows import TABS
from sweeps.service.web.sweep_view import sweep_view
from sweeps.service.web.trials_table import trials_table
from sweeps.texts.uri_passwords import redact_uri

router = APIRouter(include_in_schema=False, route_class=PageRoute)

PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]
Words = Annotated[str, Query(max_length=200)]

DONE = {
    "submitted": "It is in the queue.",
    "stop": "It was asked to stop. Its trials save their state first.",
    "stop-trial": "The trial was asked to stop. It saves its state first.",
    "register": "It is the newest version of the model in MLflow's registry.",
    "cancel": "It was removed from the queue.",
    "ended": "It had already ended.",
    "priority": "Its place in the queue has changed.",
    "resume": "It waits in the queue and will be resumed.",
    "extend": "It was extended.",
}
"""Message after each action; the address contains only the action's name."""


@router.get("/")
def sweeps(visit: ReaderVisit, state: Words = "", q: Words = "", page: PageNumber = 1) -> Response:
    """List of all sweeps: running, queued, then the newest."""
    words = q.lower().split()
    found = [row for row in visit.pages.rows(visit.principal) if row.holds(words)]
    state = state if state in TABS else ""
    counts = Counter(row.group for row in found)
    seen = visit.service.records.sweeps(LOCAL)
    return visit.answer(
        "sweeps.html",
        tabs=[(each, label, counts[each] if each else len(found)) for each, label in TABS.items()],
        state=state,
        q=q,
        shown=page_of([row for row in found if state in ("", row.group)], page),
        trouble=redact_uri(seen.trouble),
        taken=seen.taken,
    )


@router.get("/sweeps/{name}")
def sweep(visit: ReaderVisit, name: str, chosen: Annotated[SweepChoices, Query()]) -> Response:
    row = visit.row(name)
    try:
        seen = visit.service.records.snapshot(visit.principal, name) if row.recorded else None
    except UnknownName:  # removed since the list was read
        return visit.unknown(name)
    record = seen.content.settled() if seen is not None else None
    table = trials_table(record, chosen.sort, down=chosen.down, page=chosen.page) if record is not None else None
    return visit.answer(
        "sweep.html",
        row=row,
        view=sweep_view(row, seen, record, visit.pages.sites),
        figures=figures_view(visit.pages.figures, record, chosen) if record is not None else None,
        table=table,
        message=DONE.get(chosen.done, ""),
    )


@router.get("/sweeps/{name}/report")
def report(visit: ReaderVisit, name: str) -> Response:
    """Report of a sweep; it runs in a sandbox, so that its scripts cannot reach the service."""
    row = visit.row(name, recorded=True)
    if existing_report(visit.operations.record(name)) is None:
        return visit.answer("no_report.html", row=row)
    return results.report(visit.operations, name)


@router.get("/queue")
def queue(visit: ReaderVisit, done: Words = "") -> Response:
    """Page of the queue: running and waiting jobs."""
    rows, limits = visit.pages.rows(visit.principal), visit.service.config.queue
    limits_text = [f"{limits.running} at once on each machine"]
    limits_text += [f"{limits.per_user} of a user"] if limits.per_user else []
    limits_text += [f"{limits.per_project} of a project"] if limits.per_project else []
    return visit.answer(
        "queue.html",
        message=DONE.get(done, ""),
        limits=", ".join(limits_text),
        running=[row for row in rows if row.group == "running"],
        waiting=sorted((row for row in rows if row.waits), key=lambda row: row.queue_key),
        server=str(visit.request.base_url).rstrip("/"),
    )


@router.get("/api/docs")
def api_documentation(visit: ReaderVisit) -> Response:
    """Interactive documentation of the REST API, by Swagger UI. A request sent from the page acts as the page's user,
    with the session's cookie and the page's CSRF token, or with a token that is entered under "Authorize"."""
    return visit.answer("api.html")


@router.get("/audit", dependencies=[Depends(admin)])
def audit(visit: ReaderVisit, q: AuditWords = "", before: AuditPosition = None) -> Response:
    """Changes that users have made, newest first."""
    entries, following = visit.service.audit.read(ROWS, before, q)
    return visit.answer("audit.html", entries=entries, q=q, following=following, before=before)
