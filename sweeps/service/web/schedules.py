"""Pages of the schedules: their firings, the sweeps of the firings, and their nights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from sqlalchemy import Connection, select

from sweeps.service.auth.auth import Reader
from sweeps.service.database import tables
from sweeps.service.promotion.night import Night, of_schedule
from sweeps.service.schedules.definition import Definition, find_definition
from sweeps.service.schedules.overview import coming, states
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.nights_svg import NightsChart, nights_chart
from sweeps.service.web.pages import Shared
from sweeps.service.web.paging import Page, page_of
from sweeps.service.web.rendering import addresses
from sweeps.service.web.sweep_view import Fact

router = APIRouter(include_in_schema=False, route_class=PageRoute)

MOST_COMING = 5
ROWS = 30
MOST_FIRINGS = 1000
"""Largest number of firings that are read; a schedule may fire every minute."""


@dataclass(frozen=True, kw_only=True)
class Firing:
    """One firing and its sweep."""

    due: float
    state: str
    """State of its sweep; ``skipped`` or ``missed`` if there is none."""
    reason: str
    sweep: str

    @property
    def href(self) -> str:
        return f"/sweeps/{quote(self.sweep)}" if self.sweep else ""


@dataclass(frozen=True, kw_only=True)
class ScheduleLine:
    """A row of the list."""

    name: str
    sweep: str
    """Config and overrides that it starts."""
    enabled: bool
    cron: str
    zone: str
    last: Firing | None
    next: float | None


@dataclass(frozen=True, kw_only=True)
class ScheduleView:
    """Everything that a schedule's page shows."""

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
    """List of the schedules that the user may see."""
    service = pages.service
    with service.database.connect() as connection:
        found = states(service.scheduler.visible_to(principal), service.clock.now(), connection)
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
        for each in found
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
    """Page of one schedule."""
    definition = find_definition(pages.service.scheduler.visible_to(principal), name)
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


def _firings(connection: Connection, name: str) -> list[Firing]:
    """Firings of the cron line and those by hand, the latest first."""
    firings, jobs = tables.firings, tables.jobs
    query = (
        select(firings.c.due, firings.c.outcome, firings.c.reason, jobs.c.id, jobs.c.sweep, jobs.c.state, jobs.c.error)
        .outerjoin(jobs, jobs.c.id == firings.c.job)
        .where(firings.c.schedule == name)
        .order_by(firings.c.due.desc())
        .limit(MOST_FIRINGS)
    )
    rows = connection.execute(query).all()
    ids = {row.id for row in rows}
    found = [
        Firing(due=row.due, state=row.state or row.outcome, reason=row.reason or row.error or "", sweep=row.sweep or "")
        for row in rows
    ]
    by_hand = select(jobs.c.id, jobs.c.due, jobs.c.sweep, jobs.c.state, jobs.c.error).where(jobs.c.schedule == name)
    found += [
        Firing(due=row.due, state=row.state, reason=row.error or "by hand", sweep=row.sweep)
        for row in connection.execute(by_hand.order_by(jobs.c.id.desc()).limit(MOST_FIRINGS))
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
