"""Pages of the schedules: their firings, the sweeps of the firings, and their nights."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query
from fastapi.responses import Response
from sqlalchemy import Connection, select

from sweeps.provenance.redaction import redacted
from sweeps.report.formatting import duration
from sweeps.service.auth.permissions import Principal
from sweeps.service.database import tables
from sweeps.service.nights.night import OPEN, of_schedule
from sweeps.service.queue.jobs import query as query_jobs
from sweeps.service.schedules.definition import Definition
from sweeps.service.schedules.overview import coming, states
from sweeps.service.schedules.saved import Version
from sweeps.service.schedules.schedule_file import difference
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.pages import ReaderVisit
from sweeps.service.web.paging import page_of
from sweeps.service.web.sweep_view import Fact
from sweeps.texts.wording import counted

router = APIRouter(include_in_schema=False, route_class=PageRoute)

MOST_COMING = 5
ROWS = 30
MOST_CHANGES = 30
"""Maximum number of shown versions."""
DONE = {
    "save": "It is saved.",
    "pause": "It is paused: it does not fire until it is resumed.",
    "resume": "It fires again.",
    "remove": "It was removed; its versions are kept.",
    "version": "The earlier version is saved again.",
}
"""Message after each change; the address contains only the change's name."""
MOST_FIRINGS = 1000
"""Maximum number of firings that are read; a schedule may fire every minute."""


class Firing(NamedTuple):
    """One firing and its sweep."""

    due: float
    state: str
    """State of the firing's sweep; ``skipped`` or ``missed`` if there is none."""
    reason: str
    sweep: str


class Change(NamedTuple):
    """One saved version, and its differences from the previous one."""

    version: Version
    lines: list[str]


Done = Annotated[str, Query(max_length=20)]


@router.get("/schedules")
def schedules(visit: ReaderVisit, done: Done = "") -> Response:
    """List of the schedules that the user may see."""
    service, principal = visit.service, visit.principal
    with service.database.connect() as connection:
        found = states(service.scheduler.visible_to(principal), service.clock.now(), connection, principal)
    return visit.answer(
        "schedules.html",
        schedules=found,
        trouble=(service.scheduler.trouble or "") if principal.may("admin") else "",
        removed=service.schedule_editor.removed(principal),
        message=DONE.get(done, ""),
    )


@router.get("/schedules/{name}")
def schedule(
    visit: ReaderVisit, name: str, page: Annotated[int, Query(ge=1, le=1_000_000)] = 1, done: Done = ""
) -> Response:
    """Page of one schedule with a page of its firings, or of the versions of a removed one."""
    editor, principal = visit.service.schedule_editor, visit.principal
    changes = _changes(editor.versions(principal, name))
    if name in editor.removed(principal):
        return visit.answer("schedule_removed.html", name=name, changes=changes)
    definition = editor.find(principal, name)
    with visit.service.database.connect() as connection:
        firings, nights = _firings(connection, name, principal), of_schedule(connection, name)
    ahead = [each.due for each in islice(coming([definition], visit.service.clock.now()), MOST_COMING)]
    return visit.answer(
        "schedule.html",
        message=DONE.get(done, ""),
        schedule=definition.schedule,
        definition=definition,
        description=definition.description,
        may_change=editor.may_change(principal, definition),
        changes=changes,
        tag=visit.service.saved_schedules.tag(name),
        coming=ahead,
        facts=_facts(definition),
        firings=page_of(firings, page, ROWS),
        nights={night.due: night for night in nights},
        has_nights=any(night.verdict not in OPEN for night in nights),
    )


def _changes(versions: Sequence[Version]) -> list[Change]:
    """Versions, newest first, each with its differences from the previous one."""
    texts = [*(each.text for each in versions), None]
    return [
        Change(version, difference(texts[place + 1], version.text))
        for place, version in enumerate(versions[:MOST_CHANGES])
    ]


def _firings(connection: Connection, name: str, principal: Principal) -> list[Firing]:
    """Firings of the cron line and those by hand, latest first, with the sweeps that the user may see."""
    firings = tables.firings
    query = (
        select(firings.c.due, firings.c.outcome, firings.c.reason, firings.c.job)
        .where(firings.c.schedule == name)
        .order_by(firings.c.due.desc())
        .limit(MOST_FIRINGS)
    )
    jobs = {job.id: job for job in query_jobs(connection, schedule=name, principal=principal, limit=MOST_FIRINGS)}
    found = list[Firing]()
    for row in connection.execute(query):
        job = None if row.job is None else jobs.pop(row.job, None)
        if job is None:
            found.append(Firing(row.due, row.outcome, row.reason or "", ""))
        else:
            found.append(Firing(row.due, job.state, row.reason or redacted(job.error or ""), job.sweep))
    for job in jobs.values():  # by hand, or the firing is older than those that were read
        by_hand = "by hand" if job.due == job.submitted else ""  # as `fire_now` submits it
        found.append(Firing(job.due or 0.0, job.state, redacted(job.error or by_hand), job.sweep))
    return sorted(found, key=lambda firing: -firing.due)


def _facts(definition: Definition) -> list[Fact]:
    schedule = definition.schedule
    facts = [
        Fact("config", schedule.conf),
        Fact("cron", schedule.cron, code=True),
        Fact("time zone", schedule.timezone),
        Fact("if it still runs", schedule.overlap),
        Fact("if missed", schedule.missed),
        Fact("by", f"{schedule.user}, for {schedule.project}"),
    ]
    if overrides := schedule.all_overrides():
        facts.insert(1, Fact("overrides", " ".join(overrides), code=True))
    if (window := schedule.window) is not None:
        hours = f"{window.hours:g} hours" if window.hours is not None else f"{window.start} to {window.end}"
        facts.append(Fact("window", hours))
    if schedule.jitter_s:
        facts.append(Fact("random delay", f"up to {duration(schedule.jitter_s)}"))
    if schedule.priority:
        facts.append(Fact("priority", str(schedule.priority)))
    if (nights := schedule.nights) is not None:
        earlier = (
            f"warm start from up to {counted(nights.warm_start, 'earlier night')}"
            if nights.warm_start
            else "cold start"
        )
        facts.append(Fact("nights", earlier))
        if nights.champion is not None:
            facts.append(Fact("champion", f"{nights.champion.model}@{nights.champion.alias}"))
    return facts
