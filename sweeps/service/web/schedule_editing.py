"""Pages that make and change schedules: the form, pause, resume, removal, and earlier versions.

``then`` says what a posted form is for: ``save``, ``check``, or ``preview``, which the page's script sends while a
person types. All answer with the whole page, from which the script takes the parts that have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Form, Query, Request
from fastapi.responses import Response

from sweeps.completion.conf_names import ConfNames
from sweeps.completion.config_keys import keys_of
from sweeps.config.schedule import Schedule
from sweeps.errors import ConfigError, Conflict, SweepsError
from sweeps.report.expected_cost import ExpectedCost, expected_cost
from sweeps.service.auth.auth import Runner
from sweeps.service.auth.principal import Principal, project_of
from sweeps.service.schedules.editor import Checked
from sweeps.service.schedules.saved import difference, has_more_comments, write_schedule
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.pages import Pages, Shared
from sweeps.service.web.schedule_form import FilledSchedule, filled_from, mistakes_of, read_schedule_form, zones
from sweeps.service.web.schedules import schedule_page

router = APIRouter(include_in_schema=False, route_class=PageRoute)

UNNAMED = "unnamed"
"""Name of a new schedule in a preview, until it has one."""
Posted = Annotated[FilledSchedule, Depends(read_schedule_form)]
Name = Annotated[str, Query(max_length=100)]
Tag = Annotated[str, Form(max_length=100)]


@router.get("/new-schedule")
def new(request: Request, pages: Shared, principal: Runner, like: Name = "") -> Response:
    """Form for a new schedule, empty or with the settings of another one."""
    filled = FilledSchedule(values={"timezone": "UTC", "enabled": "true", "cron": "0 2 * * *", "conf": "digits"})
    if like:
        editor = pages.service.schedule_editor
        schedule = editor.find(principal, like).schedule
        filled = filled_from(schedule, editor.description(like), "")
        filled = filled.changed(name="", user=principal.user, project=project_of(principal, None))
    return _form(request, pages, principal, filled, name="")


@router.post("/new-schedule")
def create(request: Request, pages: Shared, principal: Runner, filled: Posted) -> Response:
    """Check the form, and save the schedule if that button was pressed and nothing is wrong."""
    return _check_or_save(request, pages, principal, filled, name="")


@router.get("/schedules/{name}/edit")
def edit(request: Request, pages: Shared, principal: Runner, name: str) -> Response:
    """Form with a schedule."""
    editor = pages.service.schedule_editor
    schedule = editor.find(principal, name).schedule
    filled = filled_from(schedule, editor.description(name), editor.tag(name))
    return _form(request, pages, principal, filled, name=name)


@router.post("/schedules/{name}/edit")
def change(request: Request, pages: Shared, principal: Runner, filled: Posted, name: str) -> Response:
    """Check the form, and save the schedule if that button was pressed and nothing is wrong."""
    return _check_or_save(request, pages, principal, filled, name=name)


@router.post("/schedules/{name}/pause")
def pause(request: Request, pages: Shared, principal: Runner, name: str) -> Response:
    """Pause a schedule."""
    editor = pages.service.schedule_editor
    return _act(request, pages, principal, name, "pause", lambda: editor.pause(principal, name, is_paused=True))


@router.post("/schedules/{name}/resume")
def resume(request: Request, pages: Shared, principal: Runner, name: str) -> Response:
    """Let a paused schedule fire again."""
    editor = pages.service.schedule_editor
    return _act(request, pages, principal, name, "resume", lambda: editor.pause(principal, name, is_paused=False))


@router.post("/schedules/{name}/remove")
def remove(request: Request, pages: Shared, principal: Runner, name: str, tag: Tag = "") -> Response:
    """Remove a schedule; its versions are kept."""
    editor = pages.service.schedule_editor
    return _act(request, pages, principal, name, "remove", lambda: editor.remove(principal, name, tag=tag or None))


@router.post("/schedules/{name}/versions/{number}/bring-back")
def bring_back(request: Request, pages: Shared, principal: Runner, name: str, number: int, tag: Tag = "") -> Response:
    """Save an earlier version again."""
    editor = pages.service.schedule_editor

    def act() -> None:
        editor.bring_back(principal, name, number, tag=tag or None)

    return _act(request, pages, principal, name, "version", act)


def _act(
    request: Request, pages: Pages, principal: Principal, name: str, done: str, act: Callable[[], object]
) -> Response:
    try:
        act()
    except (ConfigError, Conflict) as error:
        return schedule_page(request, pages, principal, name, message=str(error), status=_status(error))
    is_left = name in pages.service.scheduler.visible_to(principal)
    return pages.redirect(f"/schedules/{quote(name)}?done={done}" if is_left else "/schedules?done=remove")


def _status(error: Exception) -> int:
    return 409 if isinstance(error, Conflict) else 422


def _check_or_save(
    request: Request, pages: Pages, principal: Principal, filled: FilledSchedule, *, name: str
) -> Response:
    """Answer a posted form.

    Args:
        request: The request.
        pages: The service's pages.
        principal: The user.
        filled: Contents of the form.
        name: Name of the schedule; empty for a new one.
    """
    editor = pages.service.schedule_editor
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
            return _form(request, pages, principal, filled, name=name, checked=checked)
        tag = filled["tag"]
        editor.save(principal, schedule, filled["description"], tag=tag, is_new=not name)
    except Conflict as error:
        return _conflict(request, pages, principal, filled, name, error)
    except SweepsError as error:
        return _form(request, pages, principal, filled, name=name, mistakes=mistakes_of(error))
    return pages.redirect(f"/schedules/{quote(schedule.name)}?done=save")


def _conflict(
    request: Request, pages: Pages, principal: Principal, filled: FilledSchedule, name: str, error: Conflict
) -> Response:
    """Form with what was entered, and how that differs from what somebody else has saved meanwhile."""
    if not name:
        return _form(request, pages, principal, filled, name=name, mistakes={"name": str(error)}, status=409)
    editor = pages.service.schedule_editor
    present, mine = editor.text(name), write_schedule(filled.schedule(), filled["description"])
    filled = filled.changed(tag=editor.tag(name))
    return _form(
        request,
        pages,
        principal,
        filled,
        name=name,
        mistakes={"": str(error)},
        lines=difference(present, mine),
        status=409,
    )


def _form(
    request: Request,
    pages: Pages,
    principal: Principal,
    filled: FilledSchedule,
    *,
    name: str,
    checked: Checked | None = None,
    mistakes: Mapping[str, str] | None = None,
    lines: list[str] | None = None,
    status: int = 422,
) -> Response:
    """Page with the form.

    Args:
        request: The request.
        pages: The service's pages.
        principal: The user.
        filled: Contents of the form.
        name: Name of the schedule; empty for a new one.
        checked: The schedule, if it was checked and has no mistakes.
        mistakes: Mistakes by key.
        lines: Differences from what somebody else has saved.
        status: Status if there are mistakes.
    """
    live = filled["then"] == "preview"
    return pages.answer(
        request,
        "schedule_edit.html",
        principal,
        status=status if mistakes and not live else 200,
        here="Schedules",
        name=name,
        form=filled,
        confs=ConfNames(pages.service.config_dirs).described(),
        checked=checked,
        preview=checked and checked.preview,
        mistakes=mistakes or {},
        lines=lines or [],
        drops_comments=bool(name) and has_more_comments(pages.service.schedule_editor.text(name)),
        zones=zones(),
        keys=_help(),
        is_admin=principal.may("admin"),
        default_project=project_of(principal, None),
        projects=principal.projects,
        live=live,
        expected=_expected(pages, principal, filled["conf"], checked),
        command="",
    )


def _expected(pages: Pages, principal: Principal, conf: str, checked: Checked | None) -> ExpectedCost | None:
    if checked is None or checked.preview is None:
        return None
    return expected_cost(checked.preview.work, pages.past.of(principal, conf))


@cache
def _help() -> Mapping[str, str]:
    """Description of each key, from the schema."""
    return {name: key.help for name, key in keys_of([Schedule]).items()}
