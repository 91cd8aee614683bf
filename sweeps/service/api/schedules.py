"""Schedules: list, coming firings, nights; fire one now; create, change and remove them, with their versions."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import Field, TypeAdapter

from sweeps.compose.schema_errors import read_as
from sweeps.config.schedule import Schedule as Settings
from sweeps.errors import ConfigError
from sweeps.service.api.depends import Number, Serving
from sweeps.service.api.response_documents import Body, Document
from sweeps.service.app_context import AppContext
from sweeps.service.auth.auth import Reader, Runner
from sweeps.service.auth.permissions import Principal, project_of
from sweeps.service.nights.night import of_schedule
from sweeps.service.queue.jobs import JobDocument
from sweeps.service.schedules.definition import find_definition
from sweeps.service.schedules.overview import coming, states
from sweeps.service.schedules.saved import Version

router = APIRouter(tags=["schedules"])

Schedule = Annotated[str, Path(description="Name of a schedule.", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Tag = Annotated[
    str | None, Query(description="State of the schedule that is changed: its `tag`; default: any.", max_length=64)
]
Named = Annotated[str, Query(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
EXAMPLE = {"name": "evening", "cron": "30 20 * * mon-fri", "timezone": "Europe/Berlin", "conf": "digits"}
_SETTINGS = TypeAdapter(Settings)


class ScheduleBody(Body):
    """A schedule to check or to save."""

    schedule: dict[str, Any] = Field(examples=[EXAMPLE])
    """Keys and values as in a file of ``conf/schedule/``; default user and project: those of the token."""
    description: Annotated[str, Field(max_length=300)] | None = None
    """First line of the schedule's file; null: keep the current one."""
    tag: Annotated[str, Field(max_length=64)] | None = None
    """The ``tag`` of the schedule that the change is based on. If somebody else has changed it since, the answer has
    the status 409. Null: overwrite any state."""

    def settings(self, principal: Principal) -> Settings:
        """Return the schedule, or raise ``ConfigError`` with every mistake, one per line."""
        own = {"user": principal.user, "project": project_of(principal, None)}
        return read_as(Settings, {**own, **self.schedule})


class ScheduleDocument(Document):
    """A schedule with all its settings."""

    name: str
    """Name of the schedule."""
    schedule: dict[str, Any]
    """All settings of the schedule, with defaults."""
    description: str
    """First line of the schedule's file."""
    tag: str
    """Version of the schedule's saved file, to send with a change; empty if the schedule comes from the operator's own
    file."""
    is_saved: bool
    """Whether the schedule was saved through the service."""
    may_change: bool
    """Whether the user may change the schedule."""

    @classmethod
    def of(cls, service: AppContext, principal: Principal, name: str) -> ScheduleDocument:
        """Return the document of a schedule."""
        editor = service.schedule_editor
        definition = editor.find(principal, name)
        return cls(
            name=name,
            schedule=_SETTINGS.dump_python(definition.schedule, mode="json"),
            description=definition.description,
            tag=service.saved_schedules.tag(name),
            is_saved=definition.is_saved,
            may_change=editor.may_change(principal, definition),
        )


class CheckedSchedule(Document):
    """A schedule without mistakes."""

    coming: list[dict[str, Any]]
    """Next firings of the schedule."""


@router.get("/schedules")
def schedules(service: Serving, principal: Reader) -> list[dict[str, Any]]:
    """Schedules with their last and next firing: the document of ``schedule list --json``."""
    with service.database.connect() as connection:
        found = states(service.scheduler.visible_to(principal), service.clock.now(), connection, principal)
    return [each.as_json() for each in found]


@router.get("/firings")
def firings(
    service: Serving,
    principal: Reader,
    schedule: Annotated[
        list[Named] | None, Query(description="Names of schedules; default: all.", max_length=100)
    ] = None,
    limit: Annotated[int, Query(description="Maximum number of firings.", ge=1, le=10_000)] = 5,
) -> list[dict[str, Any]]:
    """Coming firings: the document of ``schedule next --json``."""
    definitions = service.scheduler.visible_to(principal)
    selected = [find_definition(definitions, name) for name in schedule or definitions]
    return [each.as_json() for each in islice(coming(selected, service.clock.now()), limit)]


@router.get("/schedules/{name}/nights")
def nights(service: Serving, principal: Reader, name: Schedule) -> list[dict[str, Any]]:
    """Results of a schedule's nights, oldest first: the document of ``schedule nights --json``; also for a removed
    schedule."""
    service.schedule_editor.versions(principal, name)  # refuses a name that this user may not see
    with service.database.connect() as connection:
        return [night.as_json() for night in of_schedule(connection, name)]


@router.post("/schedules/{name}/run", status_code=202)
def run(service: Serving, principal: Runner, name: Schedule) -> JobDocument:
    """Fire a schedule now, in addition to the firings of its cron line."""
    definition = service.schedule_editor.find(principal, name)
    return JobDocument.of(service.operations(principal).fire(definition))


@router.post("/schedules", status_code=201)
def create(service: Serving, principal: Runner, body: ScheduleBody) -> ScheduleDocument:
    """Create a schedule."""
    settings = body.settings(principal)
    service.schedule_editor.save(principal, settings, body.description, tag=body.tag, is_new=True)
    return ScheduleDocument.of(service, principal, settings.name)


@router.post("/schedules/check")
def check(service: Serving, principal: Runner, body: ScheduleBody) -> CheckedSchedule:
    """Check a schedule and its sweep without saving it."""
    checked = service.schedule_editor.check(principal, body.settings(principal))
    return CheckedSchedule(coming=[each.as_json() for each in checked.coming])


@router.get("/schedules/{name}")
def schedule(service: Serving, principal: Reader, name: Schedule) -> ScheduleDocument:
    """A schedule with all its settings."""
    return ScheduleDocument.of(service, principal, name)


@router.put("/schedules/{name}")
def change(service: Serving, principal: Runner, name: Schedule, body: ScheduleBody) -> ScheduleDocument:
    """Change a schedule. The operator's own file is not changed: the changed schedule is saved separately."""
    service.schedule_editor.find(principal, name)
    settings = body.settings(principal)
    if settings.name != name:
        raise ConfigError(f"name={settings.name}: must be {name}; make a new schedule to rename it")
    service.schedule_editor.save(principal, settings, body.description, tag=body.tag, is_new=False)
    return ScheduleDocument.of(service, principal, name)


@router.delete("/schedules/{name}", status_code=204)
def remove(service: Serving, principal: Runner, name: Schedule, tag: Tag = None) -> None:
    """Remove a saved schedule; its versions are kept."""
    service.schedule_editor.remove(principal, name, tag=tag)


@router.post("/schedules/{name}/pause")
def pause(service: Serving, principal: Runner, name: Schedule) -> ScheduleDocument:
    """Pause a schedule: it does not fire until it is resumed."""
    service.schedule_editor.pause(principal, name, is_paused=True)
    return ScheduleDocument.of(service, principal, name)


@router.post("/schedules/{name}/resume")
def resume(service: Serving, principal: Runner, name: Schedule) -> ScheduleDocument:
    """Let a paused schedule fire again."""
    service.schedule_editor.pause(principal, name, is_paused=False)
    return ScheduleDocument.of(service, principal, name)


@router.get("/schedules/{name}/versions")
def versions(service: Serving, principal: Reader, name: Schedule) -> list[Version]:
    """Saved versions of a schedule, newest first; also for a removed schedule."""
    return service.schedule_editor.versions(principal, name)


@router.post("/schedules/{name}/versions/{number}/bring-back")
def bring_back(service: Serving, principal: Runner, name: Schedule, number: Number) -> ScheduleDocument:
    """Save an earlier version of a schedule again."""
    service.schedule_editor.bring_back(principal, name, number)
    return ScheduleDocument.of(service, principal, name)
