"""Schedules: list, coming firings, nights, and firing one now."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from sweeps.service.api.depends import Serving
from sweeps.service.api.documents import JobDocument
from sweeps.service.auth.auth import Reader, Runner
from sweeps.service.promotion.night import of_schedule
from sweeps.service.schedules.definition import find_definition
from sweeps.service.schedules.overview import coming, states

router = APIRouter(tags=["schedules"])

Schedule = Annotated[str, Path(description="Name of a schedule.", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Named = Annotated[str, Query(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]


@router.get("/schedules")
def schedules(service: Serving, principal: Reader) -> list[dict[str, Any]]:
    """Schedules with their last and next firing: the document of ``schedule list --json``."""
    with service.database.connect() as connection:
        found = states(service.scheduler.visible_to(principal), service.clock.now(), connection)
    return [each.as_json() for each in found]


@router.get("/firings")
def firings(
    service: Serving,
    principal: Reader,
    schedule: Annotated[
        list[Named] | None, Query(description="Names of schedules; default: all.", max_length=100)
    ] = None,
    limit: Annotated[int, Query(description="Maximum number of firings.", ge=1, le=1000)] = 5,
) -> list[dict[str, Any]]:
    """Coming firings: the document of ``schedule next --json``."""
    definitions = service.scheduler.visible_to(principal)
    selected = [find_definition(definitions, name) for name in schedule or definitions]
    return [each.as_json() for each in islice(coming(selected, service.clock.now()), limit)]


@router.get("/schedules/{name}/nights")
def nights(service: Serving, principal: Reader, name: Schedule) -> list[dict[str, Any]]:
    """Results of a schedule's nights, oldest first: the document of ``schedule nights --json``."""
    definition = find_definition(service.scheduler.visible_to(principal), name)
    with service.database.connect() as connection:
        return [night.as_json() for night in of_schedule(connection, definition.name)]


@router.post("/schedules/{name}/run", status_code=202)
def run(service: Serving, principal: Runner, name: Schedule) -> JobDocument:
    """Fire a schedule now, in addition to the firings of its cron line."""
    definition = find_definition(service.scheduler.visible_to(principal), name)
    return JobDocument.of(service.commands.fire(principal, definition))
