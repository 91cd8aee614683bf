"""Page of one trial, its logs, and the button that stops it."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query
from fastapi.responses import PlainTextResponse, Response
from pydantic import Field

from sweeps.errors import SweepsError, UnknownName
from sweeps.plan import export
from sweeps.service.api.sweeps import TrialId, Worker
from sweeps.service.auth.auth import expensive
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.figures import CurveChoices, curves_view, figure_address, read_choices, report_data
from sweeps.service.web.pages import ReaderVisit, RunnerVisit
from sweeps.service.web.trial_view import trial_view
from sweeps.tracking.trial_logs import TrialLogs

router = APIRouter(include_in_schema=False, route_class=PageRoute)

LINES = 300
"""Number of lines from the end of a worker's log."""
STOPPED = "The trial was asked to stop. It saves its state first."


class TrialChoices(CurveChoices):
    """Query parameters of a trial's page."""

    worker: int | None = Field(None, ge=0, lt=1_000_000)
    """Rank of the worker whose log is shown; default: the first worker with a log."""
    view: str = Field("slices", max_length=20)
    """Figure of the space."""
    done: str = Field("", max_length=200)


SPACE = {"slices": "Each parameter", "parallel": "All parameters"}
"""Figures that show a trial's place in the space."""


@router.get("/sweeps/{name}/trials/{trial}")
def page(visit: ReaderVisit, name: str, trial: TrialId, chosen: Annotated[TrialChoices, Query()]) -> Response:
    row, pages = visit.row(name, recorded=True), visit.pages
    record = visit.operations.record(name).settled()
    shown = export.choose(record, trial)
    choices = read_choices(record, chosen.metric, chosen.axis, [shown.trial])
    best = [] if record.best is None else [record.best.trial]
    beside_best = read_choices(record, chosen.metric, chosen.axis, [shown.trial, *best])
    view = chosen.view if chosen.view in SPACE else "slices"
    kept = [(name, getattr(chosen, name)) for name in ("view", "worker") if name in chosen.model_fields_set]
    logs = TrialLogs(record, shown)
    workers = logs.workers()
    worker = chosen.worker if chosen.worker in workers else workers[0] if workers else None
    return visit.answer(
        "trial.html",
        row=row,
        trial=shown,
        objectives=record.metrics,
        view=trial_view(report_data(pages.figures, record), shown, pages.sites.runs(record)),
        figures=curves_view(pages.figures, record, beside_best) | {"kept": kept},
        space=SPACE,
        space_view=view,
        space_address=figure_address(record.sweep, view, choices),
        workers=workers,
        worker=worker,
        log=logs.last_lines(worker, LINES) if worker is not None else [],
        traceback=logs.traceback() if shown.failures or shown.state == "failed" else None,
        may_stop=visit.principal.may("run") and shown.state == "running" and record.status == "running",
        message=STOPPED if chosen.done == "stop" else "",
    )


@router.post("/sweeps/{name}/trials/{trial}/stop")
def stop(visit: RunnerVisit, name: str, trial: TrialId) -> Response:
    """Stop a running trial; its sweep continues."""
    try:
        visit.operations.stop(name, trial)
    except UnknownName:
        raise
    except SweepsError as error:
        return page(visit.failing(str(error)), name, trial, TrialChoices.model_validate({}))
    record = visit.operations.record(name)
    return visit.redirect(f"/sweeps/{quote(record.sweep)}/trials/{export.choose(record, trial).trial}?done=stop")


@router.get("/sweeps/{name}/trials/{trial}/logs/{worker}", dependencies=[Depends(expensive)])
def log(visit: ReaderVisit, name: str, trial: TrialId, worker: Worker) -> Response:
    """The whole log of a worker, as text."""
    visit.row(name, recorded=True)
    record = visit.operations.record(name)
    return PlainTextResponse(TrialLogs(record, export.choose(record, trial)).read_all(worker))
