"""Form for a new sweep, which is checked as on the command line before it joins the queue.

``then`` says what a posted form is for: ``submit``, ``check``, or ``preview``, which the page's script sends while a
person types. All answer with the whole page, from which the script takes the parts that have changed.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response
from pydantic import ValidationError

from sweeps.completion.token_candidates import complete_token
from sweeps.errors import SweepsError
from sweeps.provenance.redaction import redacted
from sweeps.report.plan_summary import PlanPreview
from sweeps.service.auth.permissions import project_of
from sweeps.service.auth.request_validation import KEY, OPERATORS
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.pages import ReaderVisit, RunnerVisit, Visit
from sweeps.service.web.submit_form import (
    FilledSweep,
    filled_from,
    group_fields,
    mistakes_of,
    read_form,
    read_priority,
)
from sweeps.service.web.sweep_rows import Row
from sweeps.tracking.mlflow_characters import LONGEST_TAG

router = APIRouter(include_in_schema=False, route_class=PageRoute)

MOST_CANDIDATES = 100
"""Maximum number of completions in an answer."""

Posted = Annotated[FilledSweep, Depends(read_form)]


@router.get("/submit")
def form(visit: ReaderVisit, like: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Form, empty or filled in with the request of an earlier sweep."""
    row = visit.pages.row(visit.principal, like) if like else None
    return _answer(visit, _like(visit, row) if row is not None else FilledSweep())


@router.post("/submit")
def submit(visit: RunnerVisit, filled: Posted) -> Response:
    """Check the form, and submit the sweep if the submit button was pressed and there are no mistakes."""
    try:
        number, run = read_priority(filled["priority"]), filled.request(visit.pages.conf_names)
        project = filled["project"].strip() or None
        project_of(visit.principal, project)
        if filled["then"] not in ("", "submit"):
            preview, command = visit.operations.plan(run).preview, shlex.join(run.arguments())
            return _answer(visit, filled, preview=preview, command=f"python -m sweeps {command}")
        job = visit.operations.run(run, project=project, priority=number)
    except (SweepsError, ValidationError) as error:
        return _answer(visit, filled, mistakes=mistakes_of(filled, error))
    return visit.redirect(f"/sweeps/{quote(job.sweep)}?done=submitted")


@router.get("/submit/complete")
def complete(
    visit: ReaderVisit,
    typed: Annotated[str, Query(max_length=200)],
    conf: Annotated[str, Query(max_length=120)] = "",
) -> list[dict[str, str]]:
    """Completions of an override's key or value, like those of the shells."""
    key = typed.partition("=")[0].lstrip("+~").rstrip("./")
    if key == "conf" or re.split("[./]", key)[0] in OPERATORS or (key and not KEY.fullmatch(key)):
        return []  # in a shell, file paths and the operator's groups are also completed
    before = [f"conf={conf}"] if conf in (names := visit.pages.conf_names).confs() else []
    found = complete_token(typed, before, names, wants_conf=False)
    return [{"text": each.text, "help": each.help} for each in found[:MOST_CANDIDATES]]


def _answer(
    visit: Visit,
    filled: FilledSweep,
    *,
    mistakes: Mapping[str, str] = MappingProxyType({}),
    preview: PlanPreview | None = None,
    command: str = "",
) -> Response:
    """Page with the form, its mistakes by field, or the plan of the sweep with the command line that does the same."""
    names, then = visit.pages.conf_names, filled["then"]
    if not filled["conf"]:
        confs = names.described()
        filled = FilledSweep(values={"conf": "digits" if "digits" in confs else next(iter(confs), "")})
    return visit.answer_form(
        "submit.html",
        conf=filled["conf"],
        then=then,
        mistakes=mistakes,
        preview=preview,
        groups=group_fields(filled, names),
        form=filled,
        command=command,
    )


def _like(visit: Visit, row: Row) -> FilledSweep:
    """Form with the request of an earlier sweep, or with the command that started it."""
    names = visit.pages.conf_names
    if row.owner is not None and row.owner.verb == "run":
        request: dict[str, Any] = row.owner.request
        overrides = request.get("overrides", [])
        if row.owner.user != visit.principal.user:
            overrides = [redacted(str(each)) for each in overrides]
        return filled_from(str(request["conf"]), overrides, names, row.owner.project, row.owner.priority)
    if not row.recorded:
        return FilledSweep()
    words = _words(visit.operations.record(row.sweep).command)
    conf = next((word.removeprefix("conf=") for word in words if word.startswith("conf=")), row.conf)
    return filled_from(conf, [word for word in words if "=" in word and not word.startswith(("conf=", "-"))], names)


def _words(command: str) -> list[str]:
    """Words of the command line that started a sweep, or the overrides of the call in Python; none if it cannot be
    read, or MLflow has cut it."""
    if len(command) in (LONGEST_TAG, 8000):  # 8000 until 0.2
        return []
    try:
        if not command.startswith("sweeps."):
            return shlex.split(command)
        match ast.parse(command, mode="eval").body:
            case ast.Call(args=[_, overrides]):
                return list(map(str, ast.literal_eval(overrides)))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        pass
    return []
