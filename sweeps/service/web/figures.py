"""Figures of the pages: those of the report as JSON, which the page's script draws with Plotly, or as a table; and the
viewer's choices, which are all part of the page's address.

A figure is made when a browser asks for it, and kept in ``FigureCache``.
"""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from sweeps.errors import TrackingUnreachable
from sweeps.report.figures.learning_curves import ValueAxis, learning_curves
from sweeps.report.figures.nights import nights_section
from sweeps.report.figures.style import DARK
from sweeps.report.report_data import ReportData, evenly, fetch_curves, recorded_config
from sweeps.service.nights.night import nights_of
from sweeps.service.web.error_pages import Answered, PageRoute
from sweeps.service.web.figure_cache import FigureCache
from sweeps.service.web.pages import ReaderVisit, Visit
from sweeps.service.web.rendering import conditional
from sweeps.service.web.sweep_rows import Row
from sweeps.service.web.trials_table import RANK
from sweeps.tracking.client import connect
from sweeps.tracking.metric_history import fetch_metric_names
from sweeps.tracking.record import SweepRecord

if TYPE_CHECKING:
    from sweeps.report.figures.importance import Importance
    from sweeps.report.figures.section import Section

router = APIRouter(include_in_schema=False, route_class=PageRoute)

FIGURES = {
    "curves": "Learning curves",
    "parallel": "Parallel coordinates",
    "importance": "Importance",
    "slices": "Slices",
    "contours": "Contours",
    "best": "Best so far",
    "front": "Pareto front",
    "timeline": "Timeline",
}
"""Labels of a sweep's figures, by name."""
REPORTED = {"best": "best_so_far", "front": "pareto_front"}
"""Names of figures in the report, by their names here, where these differ."""
TABLES = {
    "curves": ("line", "step", "value", "trial"),
    "importance": ("evaluator", "share", "parameter", ""),
    "best": ("state", "trials or time", "value", "trial"),
}
"""Columns of figures that have a table of their own; the data of the other figures is in the table of trials."""
NUMERIC = {"step", "share", "trials or time", "value"}
"""Columns of numbers."""
AXES = {"good": "good curves", "all": "all values", "log": "all, logarithmic"}
"""Ranges of the value axis and their labels."""
FIRST_VIEW = "parallel"
"""Figure that is shown with the learning curves until another one is chosen."""
MOST_CURVES = 60
POINTS_PER_CURVE = 60
MOST_CHOSEN = 20
"""Maximum number of trials to compare."""
ASKED_FOR_METRICS = 20
"""Number of trials from which the list of metrics is read."""
LONGEST_METRIC = 250
MOST_ROWS = 2000
"""Maximum number of rows of a figure's table."""
NOTHING = "There is nothing to show yet."


def load_libraries(tracking_uri: str) -> None:
    """Import the libraries that make figures, which takes seconds, so that the first viewer does not wait for it."""
    with suppress(TrackingUnreachable):
        connect(tracking_uri)  # which imports the parts of MLflow for a store of its kind
    import mlflow.artifacts
    import plotly.graph_objects as go
    from sklearn.ensemble import RandomForestRegressor

    from sweeps.report.figures import contours, importance

    _ = mlflow.artifacts, contours, importance, RandomForestRegressor
    go.Figure(go.Scatter(x=[0], y=[0])).to_json()  # Plotly imports its parts when they are used


class CurveChoices(BaseModel):
    """Query parameters for learning curves."""

    metric: str = Field("", max_length=LONGEST_METRIC)
    axis: str = Field("good", max_length=10)


class FigureChoices(CurveChoices):
    """Query parameters of a figure."""

    trial: list[str] = Field([], max_length=MOST_CHOSEN)
    """Trials to compare."""


class SweepChoices(FigureChoices):
    """Query parameters of a sweep's page."""

    sort: str = Field(RANK, max_length=250)
    """Column by which the trials are sorted."""
    down: bool = False
    """Whether the highest values are first."""
    page: int = Field(1, ge=1, le=1_000_000)
    trial: list[str] = Field([], max_length=10 * MOST_CHOSEN)
    view: str = Field(FIRST_VIEW, max_length=20)
    """Figure below the learning curves."""
    done: str = Field("", max_length=200)
    """Action that led here."""


NOTHING_CHOSEN = SweepChoices.model_validate({})


@dataclass(frozen=True)
class Choices:
    """Viewer's choices for the figures, from the page's address."""

    metric: str
    axis: ValueAxis
    trials: tuple[str, ...]
    """Trials to compare or to mark."""


def read_choices(record: SweepRecord, metric: str, axis: str, trials: Sequence[str]) -> Choices:
    """Read choices from an address, leaving out names that do not exist. The default metric is the first objective, and
    the trial ``7`` is ``0007``."""
    known = {trial.trial for trial in record.all_trials}
    chosen = dict.fromkeys(each if each in known else each.zfill(4) for each in trials)
    axes: dict[str, ValueAxis] = {each: each for each in get_args(ValueAxis)}
    return Choices(
        metric=metric[:LONGEST_METRIC] or record.metric,
        axis=axes.get(axis, "good"),
        trials=tuple(each for each in chosen if each in known)[:MOST_CHOSEN],
    )


def figure_address(sweep: str, figure: str, choices: Choices, end: str = "") -> str:
    """Address of one of ``FIGURES``; ``end`` is ``/table`` for the figure as a table."""
    query = [("metric", choices.metric), ("axis", choices.axis)] if figure == "curves" else []
    query += [("trial", trial) for trial in choices.trials]
    return f"/sweeps/{quote(sweep)}/figures/{figure}{end}{'?' if query else ''}{urlencode(query)}"


def metric_names(figures: FigureCache, record: SweepRecord) -> list[str]:
    """Names of the metrics that a sweep's trials report, the objectives first."""

    def look_up() -> set[str]:
        runs = [trial.run_id for trial in evenly(record.trials, ASKED_FOR_METRICS)]
        return fetch_metric_names(record.mlflow.tracking_uri, runs) if runs else set()

    found = figures.get(record, "metrics", look_up) - set(record.metrics)
    return [*record.metrics, *sorted(found, key=lambda name: (not name.startswith(("eval/", "train/")), name))]


def figures_view(figures: FigureCache, record: SweepRecord, chosen: SweepChoices) -> dict[str, Any]:
    """Variables of the template for the figures of a sweep; ``record`` is the result of ``settled``."""
    choices = read_choices(record, chosen.metric, chosen.axis, chosen.trial)
    views = {name: label for name, label in FIGURES.items() if name != "curves"}
    if len(record.metrics) < 2:
        del views["front"]
    view = chosen.view if chosen.view in views else FIRST_VIEW
    return {
        **curves_view(figures, record, choices),
        "view": view,
        "views": views,
        "view_address": figure_address(record.sweep, view, choices),
        "view_table": figure_address(record.sweep, view, choices, "/table") if view in TABLES else "",
        # Hidden fields of the form, for choices that it has no controls for.
        "kept": [(name, getattr(chosen, name)) for name in ("sort", "view", "page") if name in chosen.model_fields_set]
        + ([("down", 1)] if chosen.down else []),
    }


def curves_view(figures: FigureCache, record: SweepRecord, choices: Choices) -> dict[str, Any]:
    """Variables of the template for the learning curves only."""
    names = metric_names(figures, record)
    return {
        "metrics": names if choices.metric in names else [*names, choices.metric],
        "metric": choices.metric,
        "axes": AXES,
        "axis": choices.axis,
        "chosen": choices.trials,
        "curves_address": figure_address(record.sweep, "curves", choices),
        "curves_table": figure_address(record.sweep, "curves", choices, "/table"),
    }


def report_data(figures: FigureCache, record: SweepRecord) -> ReportData:
    """Data of the figures without learning curves."""
    config = figures.get(record, "config", lambda: recorded_config(record) or "")
    return ReportData(record=record, config=config)


@router.get("/sweeps/{name}/figures/{figure}")
def figure(visit: ReaderVisit, name: str, figure: str, chosen: Annotated[FigureChoices, Query()]) -> Response:
    """One figure of a sweep as JSON."""
    _, record = _shown(visit, name, figure, FIGURES)
    choices, figures = read_choices(record, chosen.metric, chosen.axis, chosen.trial), visit.pages.figures

    def document() -> str:
        return as_json(make_section(figures, record, figure, choices), f"/sweeps/{quote(record.sweep)}/trials/")

    return conditional(visit.request, figures.get(record, (figure, choices), document), "application/json")


def _shown(visit: Visit, name: str, figure: str, known: Container[str]) -> tuple[Row, SweepRecord]:
    """Row and record of a sweep whose figure is shown."""
    row = visit.row(name, recorded=True)
    if figure not in known:
        raise Answered(visit.unknown(name))
    return row, visit.operations.record(name).settled()


def as_json(section: Section | None, leads_to: str) -> str:
    """Document of the figures for the page's script; a point links to ``leads_to``, followed by its trial or sweep."""
    shown = [] if section is None else section.figures
    document = {
        "text": NOTHING if section is None else section.text,
        "layout": "choice" if section is None else section.layout,
        "leads_to": leads_to,
        "dark": DARK,
        "figures": [
            {
                "label": each.label,
                "height": each.height,
                "width": each.min_width,
                "figure": _without_webgl(json.loads(each.figure.to_json())),
            }
            for each in shown
        ],
    }
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _without_webgl(figure: dict[str, Any]) -> dict[str, Any]:
    """Draw the figure as SVG: Plotly compiles code for WebGL, which the pages forbid."""
    for trace in figure["data"]:
        trace["type"] = trace["type"].removesuffix("gl")
    return figure


def make_section(figures: FigureCache, record: SweepRecord, figure: str, choices: Choices) -> Section | None:
    """Section of the report with one of ``FIGURES``, as chosen by the viewer; None if there is nothing to show.

    Raises:
        TrackingUnreachable: The store cannot be reached.
    """
    data = report_data(figures, record)
    if figure == "curves":
        curves = fetch_curves(data, MOST_CURVES, POINTS_PER_CURVE, choices.metric, choices.trials)
        shown = ReportData(record=record, config=data.config, curves=curves)
        return learning_curves(shown, choices.metric, choices.trials, choices.axis)
    with figures.turn():
        return _section_of_search(figures, data, figure, choices)


def _section_of_search(figures: FigureCache, data: ReportData, figure: str, choices: Choices) -> Section | None:
    """Section of a figure other than the learning curves; these take up to seconds of computation."""
    record = data.record
    # Optuna and scikit-learn take a second to import, and learning curves do without them.
    from sweeps.report.figures.importance import by_importance, importances
    from sweeps.report.figures.parallel_coordinates import parallel_lines
    from sweeps.report.figures.sections import section_makers

    def found() -> list[dict[str, Importance]]:
        return figures.get(record, "importances", lambda: [importances(data, n) for n in range(len(record.metrics))])

    if figure == "parallel":
        return parallel_lines(data, by_importance(data, found()[0]), choices.trials)
    makers = section_makers(data, found, choices.trials[0] if choices.trials else None)
    return makers[REPORTED.get(figure, figure)]()


@router.get("/schedules/{name}/figure")
def nights(visit: ReaderVisit, name: str) -> Response:
    """The nights of a schedule as JSON."""
    visit.service.schedule_editor.find(visit.principal, name)
    with visit.service.database.connect() as connection:
        found = nights_of(connection, name)
    return conditional(visit.request, as_json(nights_section(found), "/sweeps/"), "application/json")


@router.get("/sweeps/{name}/figures/{figure}/table")
def table(visit: ReaderVisit, name: str, figure: str, chosen: Annotated[FigureChoices, Query()]) -> Response:
    """One figure of a sweep as a table, for users who cannot see it or have no JavaScript."""
    row, record = _shown(visit, name, figure, TABLES)
    choices, figures = read_choices(record, chosen.metric, "all", chosen.trial), visit.pages.figures

    def rows() -> list[tuple[str, ...]]:
        section = make_section(figures, record, figure, choices)
        return [] if section is None else [line for each in section.figures for line in table_rows(each.figure)]

    found = figures.get(record, ("table", figure, choices), rows)
    return visit.answer(
        "figure_table.html",
        row=row,
        title=FIGURES[figure],
        metric=choices.metric if figure == "curves" else "",
        heads=TABLES[figure],
        numeric=NUMERIC,
        rows=found[:MOST_ROWS],
        count=len(found),
    )


def table_rows(figure: Any) -> list[tuple[str, ...]]:
    """Rows of the lines, points and bars of a Plotly figure: name, x, y and trial."""
    rows: list[tuple[str, ...]] = []
    for trace in figure.data:
        if trace.x is None or trace.hoverinfo == "skip":
            continue
        ids = trace.customdata if trace.customdata is not None else [""] * len(trace.x)
        for x, y, trial in zip(trace.x, trace.y, ids, strict=True):
            if x is not None and y is not None:
                trial_text = trial if isinstance(trial, str) else ", ".join(map(str, trial))
                rows.append((trace.name or "", _text(x), _text(y), trial_text))
    return rows


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"
