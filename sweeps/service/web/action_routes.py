"""Routes of the forms that change sweeps and jobs: they parse the form, call the user's operations and redirect.

A mistake is shown on the page of the form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Form
from fastapi.responses import Response
from pydantic import ValidationError

from sweeps.errors import ConfigError, SweepsError, UnknownName, UserError
from sweeps.service.api.depends import Number
from sweeps.service.api.results import RegisterBody
from sweeps.service.auth.auth import expensive
from sweeps.service.queue.job_requests import Extend, Resume, Retrain
from sweeps.service.queue.jobs import Job
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.figures import NOTHING_CHOSEN
from sweeps.service.web.pages import RunnerVisit, Visit
from sweeps.service.web.router import queue as queue_page
from sweeps.service.web.router import sweep as sweep_page
from sweeps.service.web.submit_form import read_priority, split_overrides

router = APIRouter(include_in_schema=False, route_class=PageRoute)

Text = Annotated[str, Form(max_length=100_000)]
Line = Annotated[str, Form(max_length=500)]


@router.post("/sweeps/{name}/stop")
def stop(visit: RunnerVisit, name: str) -> Response:
    return _act_on_sweep(visit, name, lambda: visit.operations.stop(name), "?done=stop")


@router.post("/sweeps/{name}/resume")
def resume(visit: RunnerVisit, name: str) -> Response:
    return _act_on_sweep(visit, name, lambda: visit.operations.resume(Resume(sweep=name)), queued="resume")


@router.post("/sweeps/{name}/extend")
def extend(visit: RunnerVisit, name: str, changes: Text) -> Response:
    def act() -> Job | str:
        if not (overrides := split_overrides(changes)):
            raise ConfigError("enter the changes, such as search.num_trials=40")
        return visit.operations.extend(Extend(sweep=name, changes=overrides))

    return _act_on_sweep(visit, name, act, "?done=extend")


@router.post("/sweeps/{name}/trials/stop")
def stop_trial(visit: RunnerVisit, name: str, trial: Line = "") -> Response:
    def act() -> None:
        if not trial.strip():
            raise ConfigError("enter the number of the trial to stop")
        visit.operations.stop(name, trial.strip())

    return _act_on_sweep(visit, name, act, "?done=stop-trial")


@router.post("/sweeps/{name}/retrain")
def retrain(visit: RunnerVisit, name: str, trial: Line = "", changes: Text = "", model: Line = "") -> Response:
    """Train one trial of a sweep with its full budget."""

    def act() -> Job:
        registering = {"register": model.strip()} if model.strip() else {"no_register": True}
        values = {"sweep": name, "trial": trial.strip() or None, "overrides": split_overrides(changes), **registering}
        return visit.operations.retrain(Retrain.model_validate(values))

    return _act_on_sweep(visit, name, act)


@router.post("/sweeps/{name}/register", dependencies=[Depends(expensive)])
def register(visit: RunnerVisit, name: str, model: Line = "", trial: Line = "", alias: Line = "champion") -> Response:
    """Register a trial's checkpoint as a version of a model."""

    def act() -> None:
        body = RegisterBody(model=model.strip(), trial=trial.strip() or None, alias=alias.strip())
        visit.operations.register(name, **body.model_dump())

    return _act_on_sweep(visit, name, act, "?done=register")


@router.post("/sweeps/{name}/report", dependencies=[Depends(expensive)])
def report(visit: RunnerVisit, name: str) -> Response:
    return _act_on_sweep(visit, name, lambda: visit.operations.make_report(name), "/report")


@router.post("/jobs/{number}/cancel")
def cancel(visit: RunnerVisit, number: Number) -> Response:
    def act() -> str:
        state = visit.operations.cancel(number).state
        return {"cancelled": "cancel", "running": "stop"}.get(state, "ended")

    return _act_on_queue(visit, act)


@router.post("/jobs/{number}/priority")
def priority(visit: RunnerVisit, number: Number, priority: Annotated[str, Form(max_length=20)]) -> Response:
    def act() -> str:
        visit.operations.set_priority(number, read_priority(priority))
        return "priority"

    return _act_on_queue(visit, act)


@router.post("/schedules/{name}/run")
def run_schedule(visit: RunnerVisit, name: str) -> Response:
    """Fire a schedule now, in addition to the firings of its cron line."""
    definition = visit.service.schedule_editor.find(visit.principal, name)
    job = visit.operations.fire(definition)
    return visit.redirect(f"/sweeps/{quote(job.sweep)}?done=submitted")


def _act_on_sweep(
    visit: Visit, name: str, act: Callable[[], object], where: str = "", *, queued: str = "submitted"
) -> Response:
    """Change a sweep and show its page; ``where`` is added to its address. If that has queued a job, show the page of
    the job's sweep with the message ``queued``."""
    try:
        done = act()
    except (SweepsError, ValidationError) as error:
        if isinstance(error, UnknownName):
            visit.row(name)  # shows its own page if the sweep is unknown
        text = _mistakes(error) if isinstance(error, ValidationError) else str(error)
        return sweep_page(visit.failing(text), name, NOTHING_CHOSEN)
    if isinstance(done, Job):
        name, where = done.sweep, f"?done={queued}"
    return visit.redirect(f"/sweeps/{quote(name)}{where}")


def _act_on_queue(visit: Visit, act: Callable[[], str]) -> Response:
    """Change the queue and show its page, with the message for what was done."""
    try:
        what = act()
    except UnknownName:
        raise
    except UserError as error:
        return queue_page(visit.failing(str(error)))
    return visit.redirect(f"/queue?done={what}")


def _mistakes(error: ValidationError) -> str:
    """Mistakes by the name of the field, without positions in lists."""
    fields = [".".join(part for part in each["loc"] if isinstance(part, str)) for each in error.errors()]
    return "; ".join(
        f"{field}={each['input']}: {each['msg']}" for field, each in zip(fields, error.errors(), strict=True)
    )
