"""Pages that create and change schedules: the form, pause, resume, removal, and earlier versions.

``then`` says what a posted form is for: ``save``, ``check``, or ``preview``, which the page's script sends while a
person types. All answer with the whole page, from which the script takes the parts that have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Form, Query
from fastapi.responses import Response

from sweeps.completion.config_keys import keys_of
from sweeps.config.schedule import Schedule
from sweeps.errors import ConfigError, Conflict, SweepsError
from sweeps.service.auth.permissions import project_of
from sweeps.service.schedules.editor import Checked
from sweeps.service.schedules.schedule_file import difference, has_more_comments, write_schedule
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.pages import RunnerVisit, Visit
from sweeps.service.web.schedule_form import FilledSchedule, filled_from, mistakes_of, read_schedule_form, zones
from sweeps.service.web.schedules import schedule as schedule_page

router = APIRouter(include_in_schema=False, route_class=PageRoute)

UNNAMED = "unnamed"
"""Name of a new schedule in a preview, until it has one."""
Posted = Annotated[FilledSchedule, Depends(read_schedule_form)]
Name = Annotated[str, Query(max_length=100)]
Tag = Annotated[str, Form(max_length=100)]


@router.get("/new-schedule")
def new(visit: RunnerVisit, like: Name = "") -> Response:
    """Form for a new schedule, empty or with the settings of another one."""
    filled = FilledSchedule(values={"timezone": "UTC", "enabled": "true", "cron": "0 2 * * *", "conf": "digits"})
    if like:
        principal, definition = visit.principal, visit.service.schedule_editor.find(visit.principal, like)
        filled = filled_from(definition.schedule, definition.description, "")
        filled = filled.changed(name="", user=principal.user, project=project_of(principal, None))
    return _form(visit, filled, name="")


@router.post("/new-schedule")
def create(visit: RunnerVisit, filled: Posted) -> Response:
    """Check the form, and save the schedule if the save button was pressed and there are no mistakes."""
    return _check_or_save(visit, filled, name="")


@router.get("/schedules/{name}/edit")
def edit(visit: RunnerVisit, name: str) -> Response:
    definition = visit.service.schedule_editor.find(visit.principal, name)
    tag = visit.service.saved_schedules.tag(name)
    filled = filled_from(definition.schedule, definition.description, tag)
    return _form(visit, filled, name=name)


@router.post("/schedules/{name}/edit")
def change(visit: RunnerVisit, filled: Posted, name: str) -> Response:
    """Check the form, and save the schedule if the save button was pressed and there are no mistakes."""
    return _check_or_save(visit, filled, name=name)


@router.post("/schedules/{name}/pause")
def pause(visit: RunnerVisit, name: str) -> Response:
    editor = visit.service.schedule_editor
    return _act(visit, name, "pause", lambda: editor.pause(visit.principal, name, is_paused=True))


@router.post("/schedules/{name}/resume")
def resume(visit: RunnerVisit, name: str) -> Response:
    editor = visit.service.schedule_editor
    return _act(visit, name, "resume", lambda: editor.pause(visit.principal, name, is_paused=False))


@router.post("/schedules/{name}/remove")
def remove(visit: RunnerVisit, name: str, tag: Tag = "") -> Response:
    """Remove a schedule; its versions are kept."""
    editor = visit.service.schedule_editor
    return _act(visit, name, "remove", lambda: editor.remove(visit.principal, name, tag=tag or None))


@router.post("/schedules/{name}/versions/{number}/bring-back")
def bring_back(visit: RunnerVisit, name: str, number: int, tag: Tag = "") -> Response:
    """Save an earlier version again."""
    editor = visit.service.schedule_editor
    return _act(visit, name, "version", lambda: editor.bring_back(visit.principal, name, number, tag=tag or None))


def _act(visit: Visit, name: str, done: str, act: Callable[[], object]) -> Response:
    try:
        act()
    except (ConfigError, Conflict) as error:
        return schedule_page(visit.failing(str(error), 409 if isinstance(error, Conflict) else 422), name)
    is_left = name in visit.service.scheduler.visible_to(visit.principal)
    return visit.redirect(f"/schedules/{quote(name)}?done={done}" if is_left else "/schedules?done=remove")


def _check_or_save(visit: Visit, filled: FilledSchedule, *, name: str) -> Response:
    """Answer a posted form; the name of the schedule is empty for a new one."""
    editor, principal = visit.service.schedule_editor, visit.principal
    if name:
        editor.find(principal, name)
        filled = filled.changed(name=name)
    if not filled["project"]:
        filled = filled.changed(project=project_of(principal, None))
    if not filled["user"] or not principal.may("admin"):
        filled = filled.changed(user=principal.user)
    try:
        if filled["then"] == "preview" and not filled["name"]:
            schedule = filled.changed(name=UNNAMED).schedule()
        else:
            schedule = filled.schedule()
        if filled["then"] != "save":
            checked = editor.check(principal, schedule)
            return _form(visit, filled, name=name, checked=checked)
        tag = filled["tag"]
        editor.save(principal, schedule, filled["description"], tag=tag, is_new=not name)
    except Conflict as error:
        return _conflict(visit, filled, name, error)
    except SweepsError as error:
        return _form(visit, filled, name=name, mistakes=mistakes_of(error))
    return visit.redirect(f"/schedules/{quote(schedule.name)}?done=save")


def _conflict(visit: Visit, filled: FilledSchedule, name: str, error: Conflict) -> Response:
    """Form with the entered values, and their differences from the version that another user has saved in the
    meantime."""
    if not name:
        return _form(visit, filled, name=name, mistakes={"name": str(error)}, status=409)
    saved = visit.service.saved_schedules
    lines = difference(saved.text(name), write_schedule(filled.schedule(), filled["description"]))
    filled = filled.changed(tag=saved.tag(name))
    return _form(visit, filled, name=name, mistakes={"": str(error)}, lines=lines, status=409)


def _form(
    visit: Visit,
    filled: FilledSchedule,
    *,
    name: str,
    checked: Checked | None = None,
    mistakes: Mapping[str, str] = MappingProxyType({}),
    lines: Sequence[str] = (),
    status: int = 422,
) -> Response:
    """Page with the form of a schedule, whose name is empty for a new one. ``checked`` is a schedule without mistakes;
    ``lines`` are the differences from the one that somebody else has saved; ``status`` applies if there are
    mistakes."""
    return visit.answer_form(
        "schedule_edit.html",
        conf=filled["conf"],
        then=filled["then"],
        mistakes=mistakes,
        preview=None if checked is None else checked.preview,
        status=status,
        name=name,
        form=filled,
        checked=checked,
        lines=lines,
        drops_comments=bool(name) and has_more_comments(visit.service.saved_schedules.text(name)),
        zones=zones(),
        keys=_help(),
        is_admin=visit.principal.may("admin"),
        command="",
    )


@cache
def _help() -> Mapping[str, str]:
    """Description of each key, from the schema."""
    return {name: key.help for name, key in keys_of([Schedule]).items()}
