"""The pages that are looked at. All are served from what was last seen of the store: they stand when it is away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from sweeps.errors import UnknownName
from sweeps.redact import redact_uri
from sweeps.report.folder import existing_report
from sweeps.service.api import results
from sweeps.service.auth.auth import Reader
from sweeps.service.auth.principal import Principal
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.pages import EVERYBODY, Pages, Shared
from sweeps.service.web.paging import page_of
from sweeps.service.web.rendering import addresses
from sweeps.service.web.rows import TABS, Row
from sweeps.service.web.sweep_view import sweep_view
from sweeps.service.web.trials_table import RANK, trials_table

router = APIRouter(include_in_schema=False, route_class=PageRoute)

PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]
Words = Annotated[str, Query(max_length=200)]

DONE = {
    "submitted": "It is in the queue.",
    "stop": "It was told to stop. Its trials save their state first.",
    "stop-trial": "The trial was told to stop. It saves its state first.",
    "register": "It is the newest version of the model in MLflow's registry.",
    "cancel": "It is out of the queue.",
    "priority": "Its place in the queue has changed.",
    "resume": "It waits in the queue, and goes on when its turn comes.",
    "extend": "It goes further.",
    "report": "The report is made.",
}
"""What is told after something was done: the address has a word, and never a text."""


@dataclass(frozen=True)
class Tab:
    """A group of sweeps, and how many it has."""

    state: str
    word: str
    count: int
    chosen: bool


@dataclass(frozen=True)
class Asked:
    """What the list is filtered by."""

    state: str
    q: str


@router.get("/")
def sweeps(
    request: Request, pages: Shared, principal: Reader, state: Words = "", q: Words = "", page: PageNumber = 1
) -> Response:
    """All sweeps: what runs, what waits, then the newest."""
    words = q.lower().split()
    found = [row for row in pages.rows(principal) if row.holds(words)]
    asked = Asked(state if state in TABS else "", q)
    seen = pages.service.records.sweeps(EVERYBODY)
    return pages.answer(
        request,
        "sweeps.html",
        principal,
        here="Sweeps",
        tabs=_tabs(found, asked.state),
        asked=asked,
        shown=page_of([row for row in found if asked.state in ("", row.group)], page),
        trouble=redact_uri(seen.trouble),
        taken=seen.taken,
        address=addresses(request),
    )


@router.get("/sweeps/{name}")
def sweep(
    request: Request,
    pages: Shared,
    principal: Reader,
    name: str,
    sort: Words = RANK,
    down: bool = False,
    page: PageNumber = 1,
    done: Words = "",
) -> Response:
    """One sweep, live."""
    return sweep_page(request, pages, principal, name, sort=sort, down=down, page=page, told=DONE.get(done, ""))


def sweep_page(
    request: Request,
    pages: Pages,
    principal: Principal,
    name: str,
    *,
    sort: str = RANK,
    down: bool = False,
    page: int = 1,
    told: str = "",
    status: int = 200,
) -> Response:
    """
    Args:
        request: What is answered.
        pages: What all share.
        principal: Who asks.
        name: Of the sweep.
        sort: What its trials are sorted by.
        down: The highest first.
        page: Of its trials.
        told: What to say first.
        status: Of the answer; where it is no 200, what is told is a mistake.
    """
    row = pages.row(principal, name)
    if row is None:
        return pages.unknown(request, principal, name)
    try:
        seen = pages.service.records.snapshot(principal, name) if row.recorded else None
    except UnknownName:  # removed since the list was read
        return pages.unknown(request, principal, name)
    table = trials_table(seen.content, sort, down=down, page=page) if seen is not None else None
    chart = pages.charts.chart_of(seen.content) if seen is not None else None
    view = sweep_view(row, seen, chart, table, principal, pages.elsewhere)
    return pages.answer(
        request,
        "sweep.html",
        principal,
        status=status,
        here="Sweeps",
        view=view,
        told=told,
        address=addresses(request),
    )


@router.get("/sweeps/{name}/report")
def report(request: Request, pages: Shared, principal: Reader, name: str) -> Response:
    """The report that was made of it. It is a page with scripts of its own, and gets no access to this service."""
    row = pages.row(principal, name)
    if row is None or not row.recorded:
        return pages.unknown(request, principal, name)
    if existing_report(pages.service.records.sweep(principal, name)) is None:
        return pages.answer(request, "no_report.html", principal, here="Sweeps", row=row)
    return results.report(pages.service, principal, name)


@router.get("/queue")
def queue(request: Request, pages: Shared, principal: Reader, done: Words = "") -> Response:
    """What runs and what waits, in its order."""
    return queue_page(request, pages, principal, told=DONE.get(done, ""))


def queue_page(request: Request, pages: Pages, principal: Principal, *, told: str = "", status: int = 200) -> Response:
    """
    Args:
        request: What is answered.
        pages: What all share.
        principal: Who asks.
        told: What to say first.
        status: Of the answer; where it is no 200, what is told is a mistake.
    """
    rows, limits = pages.rows(principal), pages.service.config.queue
    said = [f"{limits.running} at once on each machine"]
    said += [f"{limits.per_user} of a user"] if limits.per_user else []
    said += [f"{limits.per_project} of a project"] if limits.per_project else []
    return pages.answer(
        request,
        "queue.html",
        principal,
        status=status,
        here="Queue",
        told=told,
        limits=", ".join(said),
        running=[row for row in rows if row.group == "running"],
        waiting=sorted((row for row in rows if row.waits), key=lambda row: row.place),
        may_run=principal.may("run"),
        server=str(request.base_url).rstrip("/"),
    )


def _tabs(rows: Sequence[Row], chosen: str) -> list[Tab]:
    counted = dict.fromkeys(TABS, 0)
    for row in rows:
        counted[row.group] = counted.get(row.group, 0) + 1
    counted[""] = len(rows)
    return [Tab(state, word, counted[state], state == chosen) for state, word in TABS.items()]
