"""Figure of parallel coordinates: a line for each trial across the axes of its parameters and objectives.

Optuna's own figure is not used, since it leaves out every trial that lacks one of the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from optuna.distributions import BaseDistribution

from sweeps.report.figures.parameter_axis import ParameterAxis
from sweeps.report.figures.section import Image, Section, SectionFigure, style_figure
from sweeps.report.figures.study_in_memory import distribution_of, label
from sweeps.report.figures.style import VALUE_SCALE, robust_range, value_range
from sweeps.report.report_data import ReportData, evenly
from sweeps.texts.wording import counted
from sweeps.tracking.record import TrialRecord

LINES = 300
"""Maximum number of lines: more would cover each other."""
AXES = 10

_ABSENT = object()


def parallel_coordinates(data: ReportData, order: Sequence[str]) -> Section | None:
    """Section with the figure; None if there is no value or no parameter.

    Args:
        data: The sweep.
        order: Paths of the parameters, the most important first.
    """
    if not data.valued or not data.paths:
        return None
    record, trials = data.record, chosen_for_lines(data)
    axes = make_axes(data, order, trials)
    values = [trial.all_values()[0] for trial in trials]
    limits = value_range(values, record.mode)
    figure = go.Figure(
        go.Parcoords(
            dimensions=axes,
            labelangle=-18,
            labelside="top",
            tickfont={"size": 11},
            line={
                "color": values,
                "colorscale": VALUE_SCALE,
                "reversescale": record.mode == "max",
                "cmin": limits[0],
                "cmax": limits[1],
                "showscale": True,
                "colorbar": {"title": {"text": record.metric, "side": "right"}, "thickness": 12},
            },
            unselected={"line": {"color": "#d1d5db", "opacity": 0.15}},
        )
    )
    style_figure(figure)
    left = max((len(text) for text in axes[0].get("ticktext", [])), default=0)  # beside the first axis
    figure.update_layout(margin={"l": max(70, 20 + 7 * left), "r": 30, "t": 110, "b": 24})
    text = "A line is a trial; the last axis and the colour are its value. "
    text += f"Drag along an axis to choose trials, click it to undo that.{describe_lines(data, order, trials)}"
    figures = [SectionFigure(figure=figure, height=480, min_width=92 * len(axes) + 120)]
    image = Image(name="parallel_coordinates", figures=[figure], size=(12, 5))
    return Section(slug="parallel", title="Parallel coordinates", text=text, figures=figures, image=image)


def chosen_for_lines(data: ReportData, always: Sequence[str] = ()) -> list[TrialRecord]:
    """Trials with a line, from the worst to the best: later lines are drawn above earlier ones.

    Args:
        data: The sweep.
        always: Trials that always have one.
    """
    trials = data.ranked
    if len(trials) > LINES:
        best = trials[: LINES // 10]
        chosen = {trial.trial for trial in (*best, *evenly(trials[len(best) :], LINES - len(best)))} | set(always)
        trials = [trial for trial in trials if trial.trial in chosen]
    return trials[::-1]


def make_axes(data: ReportData, order: Sequence[str], trials: Sequence[TrialRecord]) -> list[dict[str, Any]]:
    """Axes of the parameters and objectives, as Plotly's dimensions.

    Args:
        data: The sweep.
        order: Paths of the parameters, the most important first.
        trials: Trials that have a line.
    """
    axes = [
        _axis(data.names[path], distribution_of(data, path), [trial.params.get(path, _ABSENT) for trial in trials])
        for path in order[:AXES]
    ]
    for index, metric in enumerate(data.record.metrics):
        values = [trial.all_values()[index] for trial in trials]
        axes.append({"label": metric, "values": values, "range": robust_range(values, data.record.modes[index])})
    return axes


def describe_lines(data: ReportData, order: Sequence[str], trials: Sequence[TrialRecord]) -> str:
    """Sentences about trials and axes that the figure leaves out; empty if it shows all."""
    text = ""
    if any(set(order[:AXES]) - set(trial.params) for trial in trials):
        text += " “absent”: the trial does not have the parameter."
    if len(order) > AXES:
        text += f" The {AXES} most important of {len(order)} parameters."
    if len(data.valued) > LINES:
        text += f" {LINES:,} of {counted(len(data.valued), 'trial')}, the best among them."
    return text


def _axis(name: str, distribution: BaseDistribution, values: Sequence[Any]) -> dict[str, Any]:
    """Axis of one parameter, with a position below all others for trials without the parameter."""
    axis = ParameterAxis(distribution)
    low, high = axis.ends
    below = low - 0.12 * (high - low or 1.0)
    absent = any(value is _ABSENT for value in values)
    ticks, texts = axis.ticks()
    if absent:
        ticks, texts = [below, *ticks], ["absent", *texts]
    return {
        "label": name,
        "values": [below if value is _ABSENT else axis.position(label(value)) for value in values],
        "range": (below if absent else low, high if high > low else low + 1),
        "tickvals": ticks,
        "ticktext": texts,
    }
