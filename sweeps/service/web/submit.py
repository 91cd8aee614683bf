"""Form for a new sweep, which is checked as on the command line before it joins the queue.

``then`` says what a posted form is for: ``submit``, ``check``, or ``preview``, which the page's script sends while a
person types. All answer with the whole page, from which the script takes the parts that have changed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import ValidationError

from sweeps.completion.conf_names import ConfNames
from sweeps.completion.tokens import complete_token
from sweeps.errors import SweepsError
from sweeps.report.expected_cost import ExpectedCost, expected_cost
from sweeps.report.plan_summary import PlanPreview
from sweeps.service.auth.auth import Reader, Runner
from sweeps.service.auth.principal import Principal, project_of
from sweeps.service.auth.request_validation import KEY
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.pages import Pages, Shared
from sweeps.service.web.rows import Row
from sweeps.service.web.submit_form import (
    Filled,
    filled_from,
    group_fields,
    mistakes_of,
    read_form,
    read_priority,
)

router = APIRouter(include_in_schema=False, route_class=PageRoute)

MOST_CANDIDATES = 100
"""Largest number of completions in an answer."""

Posted = Annotated[Filled, Depends(read_form)]


@router.get("/submit")
def form(
    request: Request, pages: Shared, principal: Reader, like: Annotated[str, Query(max_length=200)] = ""
) -> Response:
    """Form, empty or filled in with the request of an earlier sweep."""
    row = pages.row(principal, like) if like else None
    filled = _like(pages, principal, row) if row is not None else Filled()
    return _answer(request, pages, principal, filled)


@router.post("/submit")
def submit(request: Request, pages: Shared, principal: Runner, filled: Posted) -> Response:
    """Check the form, and submit the sweep if that button was pressed and nothing is wrong."""
    commands = pages.service.commands
    try:
        number, run = read_priority(filled.priority), filled.request(_names(pages))
        project = filled.project.strip() or None
        project_of(principal, project)
        if filled.then != "submit":
            preview, command = commands.plan(principal, run).preview, shlex.join(run.arguments())
            return _answer(request, pages, principal, filled, preview=preview, command=f"python -m sweeps {command}")
        job = commands.run(principal, run, project=project, priority=number)
    except (SweepsError, ValidationError) as error:
        return _answer(request, pages, principal, filled, mistakes=mistakes_of(filled, error))
    return pages.redirect(f"/sweeps/{quote(job.sweep)}?done=submitted")


@router.get("/submit/complete")
def complete(
    pages: Shared,
    _principal: Reader,
    typed: Annotated[str, Query(max_length=200)],
    conf: Annotated[str, Query(max_length=120)] = "",
) -> list[dict[str, str]]:
    """Completions of an override's key or value: those of the shells."""
    key = typed.partition("=")[0].lstrip("+~").rstrip("./")
    if key == "conf" or (key and not KEY.fullmatch(key)):
        return []  # the shells also complete paths to files
    before = [f"conf={conf}"] if conf in (names := _names(pages)).confs() else []
    found = complete_token(typed, before, names, wants_conf=False)
    return [{"text": each.text, "help": each.help} for each in found[:MOST_CANDIDATES]]


def _answer(
    request: Request,
    pages: Pages,
    principal: Principal,
    filled: Filled,
    *,
    mistakes: Mapping[str, str] | None = None,
    preview: PlanPreview | None = None,
    command: str = "",
) -> Response:
    """Page with the form.

    Args:
        request: The request.
        pages: The service's pages.
        principal: The user.
        filled: Contents of the form.
        mistakes: Mistakes by field.
        preview: Plan of the sweep, if there are none.
        command: The command line that does the same.
    """
    names, live = _names(pages), filled.then == "preview"
    confs = names.described()
    if not filled.conf:
        filled = Filled(conf="digits" if "digits" in confs else next(iter(confs), ""))
    return pages.answer(
        request,
        "submit.html",
        principal,
        status=422 if mistakes and not live else 200,
        here="New sweep",
        confs=confs,
        groups=group_fields(filled, names),
        form=filled,
        mistakes=mistakes or {},
        preview=preview,
        expected=_expected(pages, principal, filled.conf, preview),
        command=command,
        default_project=project_of(principal, None),
        projects=principal.projects,
        may_run=principal.may("run"),
        live=live,
    )


def _expected(pages: Pages, principal: Principal, conf: str, preview: PlanPreview | None) -> ExpectedCost | None:
    return None if preview is None else expected_cost(preview.work, pages.past.of(principal, conf))


def _names(pages: Pages) -> ConfNames:
    return ConfNames(pages.service.config_dirs)


def _like(pages: Pages, principal: Principal, row: Row) -> Filled:
    """Form with the request of an earlier sweep, or with the command that started it."""
    names = _names(pages)
    if row.owner is not None and row.owner.verb == "run":
        request: dict[str, Any] = row.owner.request
        overrides = request.get("overrides", [])
        return filled_from(str(request["conf"]), overrides, names, row.owner.project, row.owner.priority)
    if not row.recorded:
        return Filled()
    words = shlex.split(pages.service.records.sweep(principal, row.sweep).command)
    conf = next((word.removeprefix("conf=") for word in words if word.startswith("conf=")), row.conf)
    return filled_from(conf, [word for word in words if "=" in word and not word.startswith(("conf=", "-"))], names)
