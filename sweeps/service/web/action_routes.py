"""Routes of the forms that change sweeps and jobs: they parse the form, call ``service.commands`` and redirect.

A mistake is shown on the page of the form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import Response
from pydantic import ValidationError

from sweeps.errors import ConfigError, SweepsError, UnknownName, UserError
from sweeps.service.api.results import RegisterBody
from sweeps.service.auth.auth import Runner, expensive
from sweeps.service.auth.principal import Principal
from sweeps.service.queue.jobs import Job
from sweeps.service.queue.requests import Extend, Resume, Retrain
from sweeps.service.schedules.definition import find_definition
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.pages import Pages, Shared
from sweeps.service.web.router import queue_page, sweep_page
from sweeps.service.web.submit_form import read_priority

router = APIRouter(include_in_schema=False, route_class=PageRoute)

Text = Annotated[str, Form(max_length=100_000)]
Line = Annotated[str, Form(max_length=500)]


@router.post("/sweeps/{name}/stop")
def stop(request: Request, pages: Shared, principal: Runner, name: str) -> Response:
    """Stop a running sweep."""
    commands = pages.service.commands
    return _act_on_sweep(request, pages, principal, name, "?done=stop", lambda: commands.stop(principal, name))


@router.post("/sweeps/{name}/resume")
def resume(request: Request, pages: Shared, principal: Runner, name: str) -> Response:
    """Resume an interrupted or stopped sweep."""

    def act() -> Job:
        return pages.service.commands.resume(principal, Resume(sweep=name))

    return _act_on_sweep(request, pages, principal, name, "?done=resume", act)


@router.post("/sweeps/{name}/extend")
def extend(request: Request, pages: Shared, principal: Runner, name: str, changes: Text) -> Response:
    """Extend a sweep."""

    def act() -> Job | str:
        if not changes.split():
            raise ConfigError("enter the changes, such as search.num_trials=40")
        return pages.service.commands.extend(principal, Extend(sweep=name, changes=changes.split()))

    return _act_on_sweep(request, pages, principal, name, "?done=extend", act)


@router.post("/sweeps/{name}/trials/stop")
def stop_trial(request: Request, pages: Shared, principal: Runner, name: str, trial: Line = "") -> Response:
    """Stop one trial of a sweep."""

    def act() -> None:
        if not trial.strip():
            raise ConfigError("enter the number of the trial to stop")
        pages.service.commands.stop(principal, name, trial.strip())

    return _act_on_sweep(request, pages, principal, name, "?done=stop-trial", act)


@router.post("/sweeps/{name}/retrain")
def retrain(
    request: Request,
    pages: Shared,
    principal: Runner,
    name: str,
    trial: Line = "",
    changes: Text = "",
    model: Line = "",
) -> Response:
    """Train one trial of a sweep with its full budget."""

    def act() -> Job:
        registering = {"register": model.strip()} if model.strip() else {"no_register": True}
        values = {"sweep": name, "trial": trial.strip() or None, "overrides": changes.split(), **registering}
        return pages.service.commands.retrain(principal, Retrain.model_validate(values))

    return _act_on_sweep(request, pages, principal, name, "?done=submitted", act)


@router.post("/sweeps/{name}/register", dependencies=[Depends(expensive)])
def register(
    request: Request,
    pages: Shared,
    principal: Runner,
    name: str,
    model: Line = "",
    trial: Line = "",
    alias: Line = "champion",
) -> Response:
    """Register a trial's checkpoint as a version of a model."""

    def act() -> None:
        body = RegisterBody(model=model.strip(), trial=trial.strip() or None, alias=alias.strip())
        pages.service.commands.register(principal, name, **body.model_dump())

    return _act_on_sweep(request, pages, principal, name, "?done=register", act)


@router.post("/sweeps/{name}/report", dependencies=[Depends(expensive)])
def report(request: Request, pages: Shared, principal: Runner, name: str) -> Response:
    """Make a sweep's report."""
    commands = pages.service.commands
    return _act_on_sweep(request, pages, principal, name, "/report", lambda: commands.make_report(principal, name))


@router.post("/jobs/{number}/cancel")
def cancel(request: Request, pages: Shared, principal: Runner, number: int) -> Response:
    """Take a job out of the queue."""
    commands = pages.service.commands
    return _act_on_queue(request, pages, principal, "cancel", lambda: commands.cancel(principal, number))


@router.post("/jobs/{number}/priority")
def priority(
    request: Request, pages: Shared, principal: Runner, number: int, priority: Annotated[str, Form(max_length=20)]
) -> Response:
    """Change a job's priority."""

    def act() -> Job:
        return pages.service.commands.set_priority(principal, number, read_priority(priority))

    return _act_on_queue(request, pages, principal, "priority", act)


@router.post("/schedules/{name}/run")
def run_schedule(pages: Shared, principal: Runner, name: str) -> Response:
    """Fire a schedule now, in addition to the firings of its cron line."""
    definition = find_definition(pages.service.scheduler.visible_to(principal), name)
    job = pages.service.commands.fire(principal, definition)
    return pages.redirect(f"/sweeps/{quote(job.sweep)}?done=submitted")


def _act_on_sweep(
    request: Request, pages: Pages, principal: Principal, name: str, where: str, act: Callable[[], object]
) -> Response:
    """Change a sweep and show its page, or that of the new sweep.

    Args:
        request: The request.
        pages: The service's pages.
        principal: The user.
        name: Name of the sweep.
        where: End of the address to show, after the sweep's own.
        act: The change.
    """
    try:
        done = act()
    except (SweepsError, ValidationError) as error:
        if isinstance(error, UnknownName) and pages.row(principal, name) is None:
            return pages.unknown(request, principal, name)
        text = _mistakes(error) if isinstance(error, ValidationError) else str(error)
        return sweep_page(request, pages, principal, name, message=text, status=422)
    return pages.redirect(f"/sweeps/{quote(done.sweep if isinstance(done, Job) else name)}{where}")


def _act_on_queue(
    request: Request, pages: Pages, principal: Principal, what: str, act: Callable[[], object]
) -> Response:
    """Change the queue and show its page."""
    try:
        act()
    except UnknownName:
        raise
    except UserError as error:
        return queue_page(request, pages, principal, message=str(error), status=422)
    return pages.redirect(f"/queue?done={what}")


def _mistakes(error: ValidationError) -> str:
    """Mistakes by the name of the field, without positions in lists."""
    fields = [".".join(part for part in each["loc"] if isinstance(part, str)) for each in error.errors()]
    return "; ".join(
        f"{field}={each['input']}: {each['msg']}" for field, each in zip(fields, error.errors(), strict=True)
    )
