"""Form for a new sweep, which is checked as on the command line before it joins the queue."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import Response
from pydantic import ValidationError

from sweeps.errors import ConfigError, SweepsError
from sweeps.report.choices import choices_document
from sweeps.service.auth.auth import Reader, Runner
from sweeps.service.auth.principal import Principal, project_of
from sweeps.service.queue.jobs import HIGHEST_PRIORITY
from sweeps.service.queue.requests import Run
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.pages import Pages, Shared
from sweeps.service.web.rows import Row

router = APIRouter(include_in_schema=False, route_class=PageRoute)

Line = Annotated[str, Form(max_length=500)]


@dataclass(frozen=True, kw_only=True)
class Filled:
    """Contents of the form."""

    conf: str = ""
    overrides: str = ""
    name: str = ""
    project: str = ""
    priority: str = "0"

    def request(self) -> Run:
        """Request of the form.

        Raises:
            ValidationError: A field is invalid.
        """
        lines = [line.strip() for line in self.overrides.splitlines()]
        return Run(conf=self.conf, overrides=[line for line in lines if line], name=self.name.strip() or None)


@router.get("/submit")
def form(
    request: Request, pages: Shared, principal: Reader, like: Annotated[str, Query(max_length=200)] = ""
) -> Response:
    """Form, empty or filled in with the request of an earlier sweep."""
    row = pages.row(principal, like) if like else None
    filled = _like(pages, principal, row) if row is not None else Filled()
    return _answer(request, pages, principal, filled)


@router.post("/submit")
def submit(
    request: Request,
    pages: Shared,
    principal: Runner,
    conf: Line,
    then: Line = "submit",
    overrides: Annotated[str, Form(max_length=100_000)] = "",
    name: Line = "",
    project: Line = "",
    priority: Line = "0",
) -> Response:
    """Check the form, and submit the sweep if that button was pressed and nothing is wrong."""
    filled = Filled(conf=conf, overrides=overrides, name=name, project=project, priority=priority)
    try:
        number, run, project_name = read_priority(priority), filled.request(), project.strip() or None
        project_of(principal, project_name)
        if then != "submit":
            return _answer(request, pages, principal, filled, plan=pages.service.commands.plan(principal, run).text)
        job = pages.service.commands.run(principal, run, project=project_name, priority=number)
    except (SweepsError, ValidationError) as error:
        return _answer(request, pages, principal, filled, mistakes=_mistakes(filled, error))
    return pages.redirect(f"/sweeps/{quote(job.sweep)}?done=submitted")


def read_priority(text: str) -> int:
    """Priority from a form's text.

    Raises:
        ConfigError: It is not a priority.
    """
    try:
        number = int(text.strip() or "0")
    except ValueError:
        number = HIGHEST_PRIORITY + 1
    if abs(number) > HIGHEST_PRIORITY:
        raise ConfigError(f"priority={text}: give a whole number from {-HIGHEST_PRIORITY} to {HIGHEST_PRIORITY}")
    return number


def _mistakes(filled: Filled, error: Exception) -> dict[str, str]:
    """Mistakes by the field that they are shown at; "" is the whole form."""
    if isinstance(error, ValidationError):
        found: dict[str, str] = {}
        for each in error.errors():
            key = str(each["loc"][0])
            shown = f"{each['input']}: {each['msg']}"
            found[key] = f"{found[key]}\n{shown}" if key in found else shown
        return found
    text = str(error)
    for field, signs in (("priority", "priority="), ("project", "project="), ("conf", f"conf={filled.conf}:")):
        if text.startswith(signs):
            return {field: text}
    if "--name" in text:
        return {"name": text.replace("another --name", "another name")}
    return {"overrides" if filled.overrides.strip() else "": text}


def _answer(
    request: Request,
    pages: Pages,
    principal: Principal,
    filled: Filled,
    *,
    mistakes: Mapping[str, str] | None = None,
    plan: str = "",
) -> Response:
    confs = choices_document(pages.service.config_dirs, "conf")["conf"]
    return pages.answer(
        request,
        "submit.html",
        principal,
        status=422 if mistakes else 200,
        here="New sweep",
        confs=confs,
        form=filled if filled.conf else Filled(conf="digits" if "digits" in confs else next(iter(confs), "")),
        mistakes=mistakes or {},
        plan=plan,
        default_project=project_of(principal, None),
        projects=principal.projects,
        may_run=principal.may("run"),
    )


def _like(pages: Pages, principal: Principal, row: Row) -> Filled:
    """Form with the request of an earlier sweep, or with the command that started it."""
    if row.owner is not None and row.owner.verb == "run":
        request = row.owner.request
        return _filled(str(request["conf"]), request.get("overrides", []), row.owner.project, row.owner.priority)
    if not row.recorded:
        return Filled()
    words = shlex.split(pages.service.records.sweep(principal, row.sweep).command)
    conf = next((word.removeprefix("conf=") for word in words if word.startswith("conf=")), row.conf)
    overrides = [word for word in words if "=" in word and not word.startswith(("conf=", "-"))]
    return _filled(conf, overrides, "", 0)


def _filled(conf: str, overrides: list[str], project: str, priority: int) -> Filled:
    """Form without the output folder, which the service sets."""
    shown = [each for each in overrides if not each.startswith("output_dir=")]
    return Filled(conf=conf, overrides="\n".join(shown), project=project, priority=str(priority))
