"""The pages that are looked at. All are served from what was last seen of the store: they stand when it is away."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, Response

from sweeps.errors import UnknownName
from sweeps.report.folder import existing_report
from sweeps.service.access.caller import Caller
from sweeps.service.access.guard import Reader
from sweeps.service.page.pages import Pages
from sweeps.service.page.paging import page_of
from sweeps.service.page.rendering import addresses
from sweeps.service.page.route import PageRoute
from sweeps.service.page.rows import TABS, Row
from sweeps.service.page.sweep_view import sweep_view
from sweeps.service.page.trials_table import RANK, trials_table

router = APIRouter(include_in_schema=False, route_class=PageRoute)

REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads allow-popups; default-src 'none'; img-src data: blob:; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval' blob:; connect-src data: blob:"
)
"""A report holds its own scripts, and plotly makes functions of text: a sandbox keeps it from this service."""

PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]
Words = Annotated[str, Query(max_length=200)]


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
def sweeps(request: Request, caller: Reader, state: Words = "", q: Words = "", page: PageNumber = 1) -> Response:
    """All sweeps: what runs, what waits, then the newest."""
    pages: Pages = request.app.state.pages
    words = q.lower().split()
    found = [row for row in pages.rows(caller) if row.holds(words)]
    asked = Asked(state if state in TABS else "", q)
    return pages.answer(
        request,
        "sweeps.html",
        caller,
        here="Sweeps",
        tabs=_tabs(found, asked.state),
        asked=asked,
        shown=page_of([row for row in found if asked.state in ("", row.group)], page),
        trouble=pages.seen.trouble,
        taken=pages.seen.taken,
        address=addresses(request),
    )


@router.get("/sweeps/{name}")
def sweep(
    request: Request,
    caller: Reader,
    name: str,
    sort: Words = RANK,
    down: bool = False,
    page: PageNumber = 1,
) -> Response:
    """One sweep, live."""
    pages: Pages = request.app.state.pages
    row = pages.row(caller, name)
    if row is None:
        return unknown(request, caller, name)
    try:
        seen = pages.sight.sweep(name) if row.recorded else None
    except UnknownName:  # removed since the list was read
        return unknown(request, caller, name)
    table = trials_table(seen.record, sort, down=down, page=page) if seen is not None else None
    view = sweep_view(row, seen, table, caller, pages.elsewhere)
    return pages.answer(request, "sweep.html", caller, here="Sweeps", view=view, address=addresses(request))


@router.get("/sweeps/{name}/report")
def report(request: Request, caller: Reader, name: str) -> Response:
    """The report that was made of it. It is a page with scripts of its own, and gets no access to this service."""
    pages: Pages = request.app.state.pages
    row = pages.row(caller, name)
    if row is None or not row.recorded:
        return unknown(request, caller, name)
    page = existing_report(pages.sight.sweep(name).record)
    if page is None:
        return pages.answer(request, "no_report.html", caller, here="Sweeps", row=row)
    return FileResponse(page, headers={"Content-Security-Policy": REPORT_POLICY, "Cache-Control": "no-store"})


def unknown(request: Request, caller: Caller, name: str) -> Response:
    """There is no such sweep, or not for this caller: which of both is not told."""
    pages: Pages = request.app.state.pages
    near = difflib.get_close_matches(name, [row.sweep for row in pages.rows(caller)], n=3, cutoff=0.5)
    text = f"There is no sweep {name!r}, or it is not one of yours."
    return pages.message(request, caller, 404, "No such sweep", text, near=near)


def _tabs(rows: Sequence[Row], chosen: str) -> list[Tab]:
    counted = dict.fromkeys(TABS, 0)
    for row in rows:
        counted[row.group] = counted.get(row.group, 0) + 1
    counted[""] = len(rows)
    return [Tab(state, word, counted[state], state == chosen) for state, word in TABS.items()]
