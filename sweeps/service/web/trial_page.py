"""Page of one trial: its parameters with their places in their ranges, its attempts, its checkpoints, and its logs; and
the button that stops it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query
from fastapi.responses import PlainTextResponse, Response
from pydantic import Field

from sweeps.config.space import CategoricalDistribution, ConstantDistribution, Distribution, OrdinalDistribution
from sweeps.errors import SweepsError, UnknownName
from sweeps.plan import export
from sweeps.report.formatting import duration
from sweeps.report.report_data import ReportData
from sweeps.report.terminal_tables import took
from sweeps.service.api.sweeps import TrialId, Worker
from sweeps.service.auth.auth import expensive
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.figures import CurveChoices, curves_view, figure_address, read_choices, report_data
from sweeps.service.web.pages import ReaderVisit, RunnerVisit
from sweeps.service.web.trials_table import shown
from sweeps.tracking.record import SweepRecord, TrialRecord, ended_spans
from sweeps.tracking.trial_history import may_be_cut
from sweeps.tracking.trial_logs import TrialLogs

router = APIRouter(include_in_schema=False, route_class=PageRoute)

LINES = 300
"""Number of lines from the end of a worker's log."""
MOST_CHOICES = 8
"""Maximum number of choices that are listed."""
ENDS = {
    "finished": "trained to its end",
    "pruned": "stopped early by the scheduler",
    "stopped": "stopped by a person, or by a budget",
    "running": "it trains",
    "interrupted": "its sweep ended first; resume continues it",
}
"""Reason for the end of the last attempt, by the trial's state."""
SPACE = {"slices": "Each parameter", "parallel": "All parameters"}
"""Figures that show a trial's place in the space."""
STOPPED = "The trial was asked to stop. It saves its state first."


@dataclass(frozen=True, kw_only=True)
class Parameter:
    path: str
    text: str
    searched: bool
    """Whether the sweep searches the parameter."""
    place: float | None = None
    """Position in the range, from 0 to 1; on a logarithmic scale if the search uses one."""
    low: str = ""
    high: str = ""
    scale: str = ""
    """Description of the range: ``1e-05 to 0.1, logarithmic``."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Attempt of a trial: a period during which it had workers."""

    number: int
    held: float
    """Unix time at which the trial got its workers."""
    ended: float
    starting: str
    """Time until the workers began to train."""
    trained: str
    """Time for which the workers have trained."""
    workers: str
    outcome: str
    """State in which the attempt ended."""
    why: str
    """Reason for the end."""


class TrialChoices(CurveChoices):
    """Query parameters of a trial's page."""

    worker: int | None = Field(None, ge=0, lt=1_000_000)
    """Rank of the worker whose log is shown; default: the first worker with a log."""
    view: str = Field("slices", max_length=20)
    """Figure of the space."""
    done: str = Field("", max_length=200)


@router.get("/sweeps/{name}/trials/{trial}")
def page(visit: ReaderVisit, name: str, trial: TrialId, chosen: Annotated[TrialChoices, Query()]) -> Response:
    row, pages = visit.row(name, recorded=True), visit.pages
    record = visit.operations.record(name).settled()
    found = export.choose(record, trial)
    choices = read_choices(record, chosen.metric, chosen.axis, [found.trial])
    best = [] if record.best is None else [record.best.trial]
    beside_best = read_choices(record, chosen.metric, chosen.axis, [found.trial, *best])
    view = chosen.view if chosen.view in SPACE else "slices"
    kept = [(name, getattr(chosen, name)) for name in ("view", "worker") if name in chosen.model_fields_set]
    logs = TrialLogs(record, found)
    workers = logs.workers()
    worker = chosen.worker if chosen.worker in workers else workers[0] if workers else None
    return visit.answer(
        "trial.html",
        row=row,
        trial=found,
        objectives=record.metrics,
        view=trial_view(report_data(pages.figures, record), found, pages.sites.runs(record)),
        figures=curves_view(pages.figures, record, beside_best) | {"kept": kept},
        space=SPACE,
        space_view=view,
        space_address=figure_address(record.sweep, view, choices),
        workers=workers,
        worker=worker,
        log=logs.last_lines(worker, LINES) if worker is not None else [],
        traceback=logs.traceback() if found.failures or found.state == "failed" else None,
        may_stop=visit.principal.may("run") and found.state == "running" and record.status == "running",
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


def trial_view(data: ReportData, trial: TrialRecord, runs: str | None) -> dict[str, Any]:
    """Variables of the page's template; ``runs`` is the beginning of the addresses of MLflow's runs, if it has any."""
    record = data.record
    best = {each.trial for each in record.front}
    place = next((number for number, each in enumerate(data.ranked, start=1) if each.trial == trial.trial), None)
    ids = [each.trial for each in record.all_trials]
    index = ids.index(trial.trial)
    return {
        "tiles": _tiles(data, trial, place),
        "is_best": trial.trial in best,
        "params": [_parameter(data, path, value) for path, value in trial.params.items()],
        "attempts": attempts(record, trial),
        "run": None if runs is None else f"{runs}{trial.run_id}",
        "before": ids[index - 1] if index else None,
        "after": ids[index + 1] if index + 1 < len(ids) else None,
        "is_function": data.is_function,
    }


def _tiles(data: ReportData, trial: TrialRecord, place: int | None) -> list[tuple[str, str, str]]:
    """Label, value and details of each key number."""
    record, values = data.record, trial.all_values()
    rank = f"{place} of {len(data.valued):,}, {record.mode}" if place is not None else record.mode
    found = [
        (metric, f"{values[index]:.5g}" if index < len(values) else "none yet", "" if index else rank)
        for index, metric in enumerate(record.metrics)
    ]
    found.append(("steps", f"{trial.steps:,}", trial.state))
    found.append(
        ("took", took(record, trial) or "unknown", f"{trial.attempts} attempt{'s' if trial.attempts != 1 else ''}")
    )
    return found


def _parameter(data: ReportData, path: str, value: Any) -> Parameter:
    distribution = data.space.get(path)
    text = shown(value)
    if distribution is None or isinstance(distribution, ConstantDistribution):
        return Parameter(path=path, text=text, searched=distribution is None and path in data.paths)
    if isinstance(distribution, CategoricalDistribution | OrdinalDistribution):
        return Parameter(path=path, text=text, searched=True, scale=_choices(distribution))
    low, high, log = distribution.low, distribution.high, distribution.log
    place = None
    if isinstance(value, int | float) and high > low and (value > 0 or not log):
        at, first, last = (math.log(each) if log else each for each in (value, low, high))
        place = min(1.0, max(0.0, (at - first) / (last - first)))
    scale = f"{shown(low)} to {shown(high)}{', logarithmic' if log else ''}"
    return Parameter(path=path, text=text, searched=True, place=place, low=shown(low), high=shown(high), scale=scale)


def _choices(distribution: Distribution) -> str:
    choices = [shown(each) for each in getattr(distribution, "choices", ())]
    more = len(choices) - MOST_CHOICES
    return "one of " + "; ".join(choices[:MOST_CHOICES]) + (f" and {more} more" if more > 0 else "")


def attempts(record: SweepRecord, trial: TrialRecord) -> list[Attempt]:
    """Recorded attempts of a trial, in order, each with the reason for its end."""
    found, spans = [], ended_spans(record, trial)
    earlier = max(0, trial.attempts - len(spans)) if may_be_cut(trial.spans) else 0
    for number, (span, ended) in enumerate(spans, start=1):
        following = spans[number][0].held if number < len(spans) else math.inf
        failure = next((each for each in trial.failures if span.held <= each.ended < following), None)
        if failure is not None and failure.moved:
            outcome, why = "interrupted", f"moved to other workers: {failure.error}"
        elif failure is not None:
            outcome, why = "failed", failure.error
        elif number < len(spans):
            outcome, why = "interrupted", "paused, or its driver ended; it continued in the next one"
        else:
            outcome, why = trial.state, trial.error or trial.violation or ENDS.get(trial.state, "")
        found.append(
            Attempt(
                number=earlier + number,
                held=span.held,
                ended=ended,
                starting=duration(max(0.0, span.trained - span.held)),
                trained=duration(max(0.0, ended - span.trained)),
                workers=", ".join(span.workers),
                outcome=outcome,
                why=why,
            )
        )
    return found
