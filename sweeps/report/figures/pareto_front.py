"""Figure of several objectives with the Pareto front."""

from __future__ import annotations

import itertools

import plotly.graph_objects as go

from sweeps.report.figures.section import Image, Section, SectionFigure, scatter_for, style_figure, trial_hover
from sweeps.report.figures.style import BEST_COLOUR, STATE_COLOURS, robust_range
from sweeps.report.report_data import ReportData
from sweeps.texts.wording import counted
from sweeps.tracking.record import TrialRecord


def pareto_front(data: ReportData) -> Section | None:
    """Section with a figure for each pair of objectives; None for a single objective."""
    record = data.record
    if len(record.metrics) < 2 or not data.valued:
        return None
    figures = [
        SectionFigure(figure=_figure(data, x, y), label=f"{record.metrics[x]} and {record.metrics[y]}", height=480)
        for x, y in itertools.combinations(range(len(record.metrics)), 2)
    ]
    goals = " and ".join(f"{metric} ({mode})" for metric, mode in zip(record.metrics, record.modes, strict=True))
    text = (
        f"The objectives are {goals}. The front has {counted(len(record.front), 'trial')}: no other trial is as good "
        "in all objectives and better in one."
    )
    image = Image(name="pareto_front", figures=[figures[0].figure], size=(7, 5.5))
    return Section(slug="front", title="Pareto front", text=text, figures=figures, image=image)


def _figure(data: ReportData, x: int, y: int) -> go.Figure:
    record = data.record
    front = {trial.trial for trial in record.front}
    figure = go.Figure()
    scatter = scatter_for(len(data.valued))
    groups = [
        (state, [trial for trial in data.valued if trial.state == state and trial.trial not in front], colour)
        for state, colour in STATE_COLOURS.items()
    ]
    for name, trials, colour in [*groups, ("Pareto front", record.front, BEST_COLOUR)]:
        if not trials:
            continue
        is_front = colour == BEST_COLOUR
        points = zip(*sorted(_point(data, trial, x, y) for trial in trials), strict=True)
        figure.add_trace(
            scatter(
                **dict(zip(("x", "y", "text", "customdata"), points, strict=True)),
                mode="lines+markers" if is_front and len(record.metrics) == 2 else "markers",
                name=name,
                line={"color": colour, "width": 1.5, "dash": "dot"},
                marker={"color": colour, "size": 9 if is_front else 6, "opacity": 1.0 if is_front else 0.5},
                hovertemplate="%{text}<br><b>%{x:.5g}, %{y:.5g}</b><extra></extra>",
            )
        )
    style_figure(figure, hovermode="closest")
    figure.update_xaxes(title=record.metrics[x], range=_range(data, x))
    return figure.update_yaxes(title=record.metrics[y], range=_range(data, y))


def _point(data: ReportData, trial: TrialRecord, x: int, y: int) -> tuple[float, float, str, str]:
    values = trial.all_values()
    return values[x], values[y], trial_hover(trial, len(data.valued)), trial.trial


def _range(data: ReportData, objective: int) -> tuple[float, float] | None:
    return robust_range([trial.all_values()[objective] for trial in data.valued], data.record.modes[objective])
