"""What a person does to sweeps on the pages. A mistake is told on the page that it was made on."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError

from sweeps.errors import ConfigError, SweepsError, UnknownName, UserError
from sweeps.service.api import queue, results
from sweeps.service.auth.auth import Runner, expensive
from sweeps.service.auth.principal import Principal
from sweeps.service.queue.requests import Extend, Resume, Retrain
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.pages import Pages, Shared
from sweeps.service.web.router import queue_page, sweep_page
from sweeps.service.web.submit import read_priority

router = APIRouter(include_in_schema=False, route_class=PageRoute)

Text = Annotated[str, Form(max_length=100_000)]
Line = Annotated[str, Form(max_length=500)]


@router.post("/sweeps/{name}/stop")
def stop(request: Request, pages: Shared, principal: Runner, name: str) -> Response:
    """End a sweep that runs."""
    try:
        pages.service.commands.stop(principal, name)
    except SweepsError as error:
        return _refused(request, pages, principal, name, error)
    return _done(pages, name, "stop")


@router.post("/sweeps/{name}/resume")
def resume(request: Request, pages: Shared, principal: Runner, name: str) -> Response:
    """Go on with one that was interrupted or stopped."""
    try:
        pages.service.commands.resume(principal, Resume(sweep=name))
    except (SweepsError, ValidationError) as error:
        return _refused(request, pages, principal, name, error)
    return _done(pages, name, "resume")


@router.post("/sweeps/{name}/extend")
def extend(request: Request, pages: Shared, principal: Runner, name: str, changes: Text) -> Response:
    """Let it go further."""
    try:
        if not changes.split():
            raise ConfigError("say what is to change, as in search.num_trials=40")
        pages.service.commands.extend(principal, Extend(sweep=name, changes=changes.split()))
    except (SweepsError, ValidationError) as error:
        return _refused(request, pages, principal, name, error)
    return _done(pages, name, "extend")


@router.post("/sweeps/{name}/trials/stop")
def stop_trial(request: Request, pages: Shared, principal: Runner, name: str, trial: Line = "") -> Response:
    """End one of its trials."""
    try:
        if not trial.strip():
            raise ConfigError("say which trial is to stop, by its number")
        pages.service.commands.stop(principal, name, trial.strip())
    except SweepsError as error:
        return _refused(request, pages, principal, name, error)
    return _done(pages, name, "stop-trial")


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
    """Train one of its trials with its full budget."""
    registering = {"register": model.strip()} if model.strip() else {"no_register": True}
    try:
        asked = {"sweep": name, "trial": trial.strip() or None, "overrides": changes.split(), **registering}
        job = pages.service.commands.retrain(principal, Retrain.model_validate(asked))
    except (SweepsError, ValidationError) as error:
        return _refused(request, pages, principal, name, error)
    return _done(pages, job.sweep, "submitted")


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
    """Make a trial's checkpoint a version of a model."""
    try:
        body = results.RegisterBody(model=model.strip(), trial=trial.strip() or None, alias=alias.strip())
        results.register(pages.service, principal, name, body)
    except (SweepsError, ValidationError) as error:
        return _refused(request, pages, principal, name, error)
    return _done(pages, name, "register")


@router.post("/sweeps/{name}/report", dependencies=[Depends(expensive)])
def report(request: Request, pages: Shared, principal: Runner, name: str) -> Response:
    """Make its report."""
    try:
        results.make(pages.service, principal, name)
    except SweepsError as error:
        return _refused(request, pages, principal, name, error)
    return RedirectResponse(f"/sweeps/{quote(name)}/report", 303)


@router.post("/jobs/{number}/cancel")
def cancel(request: Request, pages: Shared, principal: Runner, number: int) -> Response:
    """Take a job out of the queue."""
    try:
        queue.cancel(pages.service, principal, number)
    except UserError as error:
        if isinstance(error, UnknownName):
            raise
        return queue_page(request, pages, principal, told=str(error), status=422)
    pages.changed()
    return RedirectResponse("/queue?done=cancel", 303)


@router.post("/jobs/{number}/priority")
def priority(
    request: Request, pages: Shared, principal: Runner, number: int, priority: Annotated[str, Form(max_length=20)]
) -> Response:
    """Let it start earlier or later."""
    try:
        queue.reorder(pages.service, principal, number, queue.Order(priority=read_priority(priority)))
    except UserError as error:
        if isinstance(error, UnknownName):
            raise
        return queue_page(request, pages, principal, told=str(error), status=422)
    pages.changed()
    return RedirectResponse("/queue?done=priority", 303)


def _done(pages: Pages, name: str, what: str) -> Response:
    pages.changed()
    return RedirectResponse(f"/sweeps/{quote(name)}?done={what}", 303)


def _refused(request: Request, pages: Pages, principal: Principal, name: str, error: Exception) -> Response:
    if isinstance(error, UnknownName) and pages.row(principal, name) is None:
        return pages.unknown(request, principal, name)
    text = _mistakes(error) if isinstance(error, ValidationError) else str(error)
    return sweep_page(request, pages, principal, name, told=text, status=422)


def _mistakes(error: ValidationError) -> str:
    return "; ".join(f"{_key(each['loc'])}={each['input']}: {each['msg']}" for each in error.errors())


def _key(place: tuple[int | str, ...]) -> str:
    """What a person has filled in, without places in lists."""
    return ".".join(part for part in place if isinstance(part, str))
