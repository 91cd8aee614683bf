"""The pages of schedules: when they fire, what came of it, and what their nights have brought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy import Connection, select

from sweeps.service.auth.auth import Reader, Runner
from sweeps.service.auth.principal import Principal, visible
from sweeps.service.database import tables
from sweeps.service.database.engine import writing
from sweeps.service.promotion.night import Night, of_schedule
from sweeps.service.schedules.definition import Definition
from sweeps.service.schedules.firing import fire_now
from sweeps.service.schedules.overview import coming, states
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.nights_svg import NightsChart, nights_chart
from sweeps.service.web.pages import Pages, Shared
from sweeps.service.web.paging import Page, page_of
from sweeps.service.web.rendering import addresses
from sweeps.service.web.sweep_view import Fact
from sweeps.suggestions import did_you_mean

router = APIRouter(include_in_schema=False, route_class=PageRoute)

MOST_COMING = 5
ROWS = 30
MOST_FIRINGS = 1000
"""That are read: of a schedule that fires every minute, not those of all time."""


@dataclass(frozen=True, kw_only=True)
class Firing:
    """What came of one."""

    due: float
    state: str
    """Of its sweep, or why there is none: skipped or missed."""
    reason: str
    sweep: str

    @property
    def href(self) -> str:
        return f"/sweeps/{quote(self.sweep)}" if self.sweep else ""


@dataclass(frozen=True, kw_only=True)
class ScheduleLine:
    """A line of the list."""

    name: str
    sweep: str
    """What it starts."""
    enabled: bool
    cron: str
    zone: str
    last: Firing | None
    next: float | None


@dataclass(frozen=True, kw_only=True)
class ScheduleView:
    """All that the page of one shows."""

    name: str
    enabled: bool
    next: float | None
    coming: Sequence[float]
    facts: Sequence[Fact]
    firings: Page[Firing]
    nights: Mapping[float, Night]
    chart: NightsChart | None


@router.get("/schedules")
def schedules(request: Request, pages: Shared, principal: Reader) -> Response:
    """All that there are for the principal."""
    service = pages.service
    with service.database.connect() as connection:
        stand = states(_definitions(pages, principal), service.clock.now(), connection)
    lines = [
        ScheduleLine(
            name=each.definition.name,
            sweep=" ".join([f"conf={each.definition.schedule.conf}", *each.definition.schedule.overrides]),
            enabled=each.definition.schedule.enabled,
            cron=each.definition.schedule.cron,
            zone=each.definition.schedule.timezone,
            last=None
            if each.last is None
            else Firing(
                due=each.last.due, state=each.last.state or each.last.outcome, reason="", sweep=each.last.sweep or ""
            ),
            next=None if each.coming is None else each.coming.due,
        )
        for each in stand
    ]
    return pages.answer(
        request,
        "schedules.html",
        principal,
        here="Schedules",
        schedules=lines,
        may_run=principal.may("run"),
        trouble=service.scheduler.trouble or "",
    )


@router.get("/schedules/{name}")
def schedule(
    request: Request,
    pages: Shared,
    principal: Reader,
    name: str,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> Response:
    """One of them."""
    definition = _definitions(pages, principal).get(name)
    if definition is None:
        return _unknown(request, pages, principal, name)
    with pages.service.database.connect() as connection:
        firings, nights = _firings(connection, name), of_schedule(connection, name)
    ahead = [each.due for each in islice(coming([definition], pages.service.clock.now()), MOST_COMING)]
    view = ScheduleView(
        name=name,
        enabled=definition.schedule.enabled,
        next=ahead[0] if ahead else None,
        coming=ahead,
        facts=_facts(definition),
        firings=page_of(firings, page, ROWS),
        nights={night.due: night for night in nights},
        chart=nights_chart(nights),
    )
    may_run, address = principal.may("run"), addresses(request)
    return pages.answer(
        request, "schedule.html", principal, here="Schedules", view=view, may_run=may_run, address=address
    )


@router.post("/schedules/{name}/run")
def run(request: Request, pages: Shared, principal: Runner, name: str) -> Response:
    """Fire it once more, now."""
    definition = _definitions(pages, principal).get(name)
    if definition is None:
        return _unknown(request, pages, principal, name)
    with writing(pages.service.database) as connection:
        job = fire_now(connection, definition, pages.service.clock.now(), principal.user)
    pages.service.runner.wake()
    pages.changed()
    return RedirectResponse(f"/sweeps/{quote(job.sweep)}?done=submitted", 303)


def _definitions(pages: Pages, principal: Principal) -> dict[str, Definition]:
    found = pages.service.scheduler.definitions
    return {name: each for name, each in found.items() if visible(principal, each.schedule)}


def _unknown(request: Request, pages: Pages, principal: Principal, name: str) -> Response:
    text = (
        f"There is no schedule {name!r}, or it is not one of yours{did_you_mean(name, _definitions(pages, principal))}"
    )
    more = {"title": "No such schedule", "back": "/schedules"}
    return pages.answer(request, "message.html", principal, status=404, here="Schedules", text=text, **more)


def _firings(connection: Connection, name: str) -> list[Firing]:
    """The latest first: those of its cron line, and those by hand."""
    firings, jobs = tables.firings, tables.jobs
    of_line = (
        select(firings.c.due, firings.c.outcome, firings.c.reason, jobs.c.id, jobs.c.sweep, jobs.c.state, jobs.c.error)
        .outerjoin(jobs, jobs.c.id == firings.c.job)
        .where(firings.c.schedule == name)
        .order_by(firings.c.due.desc())
        .limit(MOST_FIRINGS)
    )
    rows = connection.execute(of_line).all()
    ids = {row.id for row in rows}
    found = [
        Firing(due=row.due, state=row.state or row.outcome, reason=row.reason or row.error or "", sweep=row.sweep or "")
        for row in rows
    ]
    own = select(jobs.c.id, jobs.c.due, jobs.c.sweep, jobs.c.state, jobs.c.error).where(jobs.c.schedule == name)
    found += [
        Firing(due=row.due, state=row.state, reason=row.error or "by hand", sweep=row.sweep)
        for row in connection.execute(own.order_by(jobs.c.id.desc()).limit(MOST_FIRINGS))
        if row.id not in ids
    ]
    return sorted(found, key=lambda firing: -firing.due)


def _facts(definition: Definition) -> list[Fact]:
    schedule = definition.schedule
    facts = [
        Fact(label="config", text=schedule.conf),
        Fact(label="cron", text=schedule.cron, code=True),
        Fact(label="time zone", text=schedule.timezone),
        Fact(label="if it still runs", text=schedule.overlap),
        Fact(label="if missed", text=schedule.missed),
        Fact(label="by", text=f"{schedule.user}, for {schedule.project}"),
    ]
    if overrides := schedule.all_overrides():
        facts.insert(1, Fact(label="overrides", text=" ".join(overrides), code=True))
    if (window := schedule.window) is not None:
        hours = f"{window.hours:g} hours" if window.hours is not None else f"{window.start} to {window.end}"
        facts.append(Fact(label="window", text=hours))
    if schedule.nights is not None and (champion := schedule.nights.champion) is not None:
        facts.append(Fact(label="champion", text=f"{champion.model}@{champion.alias}"))
    return facts
