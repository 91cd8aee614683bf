"""Figure of parallel coordinates: a line for each trial across the axes of its parameters and objectives.

Optuna's own figure is not used, since it leaves out every trial that lacks one of the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from optuna.distributions import BaseDistribution

from sweeps.report.figures.parameter_axis import ParameterAxis
from sweeps.report.figures.section import Image, Section, SectionFigure, escape_hover, lines_trace, style_figure
from sweeps.report.figures.study_in_memory import distribution_of, labels_of
from sweeps.report.figures.style import (
    BACKGROUND,
    BEST_COLOUR,
    CHOSEN_COLOURS,
    INK,
    RANK_COLOURS,
    VALUE_SCALE,
    robust_range,
    value_range,
)
from sweeps.report.report_data import ReportData, evenly
from sweeps.texts.wording import counted
from sweeps.tracking.record import TrialRecord
from sweeps.tracking.values import short

LINES = 300
"""Maximum number of lines: more would cover each other."""
AXES = 10
RANKS: dict[str, float] = {
    "worse half": 1.0,
    "better half": 0.5,
    "best quarter": 0.25,
    "best tenth": 0.1,
    "best": 0.0,
}
"""Groups of trials, worst first, and the share of the trials in each group or a better one."""

_ABSENT = object()


def parallel_coordinates(data: ReportData, order: Sequence[str]) -> Section | None:
    """Section with the figure of the parameters in ``order`` (most important first); None if there is no value or no
    parameter."""
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
    """Trials with a line, from the worst to the best: later lines are drawn above earlier ones. Trials in ``always``
    have one in any case."""
    trials = data.ranked
    if len(trials) > LINES:
        best = trials[: LINES // 10]
        chosen = {trial.trial for trial in (*best, *evenly(trials[len(best) :], LINES - len(best)))} | set(always)
        trials = [trial for trial in trials if trial.trial in chosen]
    return trials[::-1]


def make_axes(data: ReportData, order: Sequence[str], trials: Sequence[TrialRecord]) -> list[dict[str, Any]]:
    """Axes of the parameters in ``order`` (most important first) and of the objectives: Plotly's dimensions with the
    values of the trials that have a line."""
    axes = []
    for path in order[:AXES]:
        label = labels_of(data, path)
        labels = [label(trial.params[path]) if path in trial.params else _ABSENT for trial in trials]
        axes.append(_axis(data.names[path], distribution_of(data, path), labels))
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
    """Axis of one parameter, from the labels of its values, with a position below all others for trials without the
    parameter."""
    axis = ParameterAxis(distribution)
    low, high = axis.ends
    below = low - 0.12 * (high - low or 1.0)
    absent = any(value is _ABSENT for value in values)
    ticks, texts = axis.ticks()
    if absent:
        ticks, texts = [below, *ticks], ["absent", *texts]
    return {
        "label": name,
        "values": [below if value is _ABSENT else axis.position(value) for value in values],
        "range": (below if absent else low, high if high > low else low + 1),
        "tickvals": ticks,
        "ticktext": texts,
    }


def parallel_lines(data: ReportData, order: Sequence[str], marked: Sequence[str] = ()) -> Section | None:
    """Section with a figure of parallel coordinates drawn as plain lines, each a link to its trial; None if there is no
    value or no parameter.

    Plotly's own kind of this figure, whose axes can be brushed, compiles code in the browser, which the service's pages
    forbid.

    Args:
        data: The sweep.
        order: Paths of the parameters, the most important first.
        marked: Trials that are drawn in colours of their own.
    """
    if not data.valued or not data.paths:
        return None
    trials = chosen_for_lines(data, marked)
    axes = make_axes(data, order, trials)
    figure = go.Figure()
    groups: dict[str, list[int]] = {name: [] for name in RANKS}
    for index, trial in enumerate(trials):
        if trial.trial not in marked:
            groups[_rank(len(trials) - 1 - index, len(trials))].append(index)
    for (name, shown), colour in zip(groups.items(), RANK_COLOURS, strict=True):
        if shown:
            figure.add_trace(_lines(axes, trials, shown, name, colour, 2.5 if name == "best" else 1.2))
    colours = CHOSEN_COLOURS if len(marked) > 1 else (BEST_COLOUR,)
    at = {trial.trial: index for index, trial in enumerate(trials)}
    for number, trial_id in enumerate(marked):
        if trial_id in at:
            colour = colours[number % len(colours)]
            figure.add_trace(_lines(axes, trials, [at[trial_id]], f"trial {trial_id}", colour, 3.5))
    style_figure(figure, hovermode="closest", annotations=_tick_texts(axes))
    last = len(axes) - 1
    names = [axis["label"] for axis in axes]
    figure.update_xaxes(tickvals=[*range(len(axes))], ticktext=names, range=(-0.2, last + 0.6), gridwidth=2)
    figure.update_yaxes(visible=False, range=(-0.05, 1.05))
    text = f"A line is a trial; the stronger its colour, the better.{describe_lines(data, order, trials)}"
    figures = [SectionFigure(figure=figure, height=440, min_width=96 * len(axes) + 60)]
    return Section(slug="parallel", title="Parallel coordinates", text=text, figures=figures)


def _rank(place: int, count: int) -> str:
    """Group of a trial by its rank, from 0."""
    return next(name for name, share in reversed(RANKS.items()) if place <= share * (count - 1))


def _lines(
    axes: Sequence[Mapping[str, Any]],
    trials: Sequence[TrialRecord],
    shown: Sequence[int],
    name: str,
    colour: str,
    width: float,
) -> Any:
    """One trace for the lines of several trials."""
    lines = (
        (trials[index].trial, range(len(axes)), [_height(axis, axis["values"][index]) for axis in axes])
        for index in shown
    )
    return lines_trace(lines, name, colour, width, "trial %{customdata}", mode="lines")


def _ends(axis: Mapping[str, Any]) -> tuple[float, float]:
    low, high = axis["range"] or (min(axis["values"]), max(axis["values"]))
    return low, high if high > low else low + 1


def _height(axis: Mapping[str, Any], position: float) -> float:
    """Height of a position from 0 to 1; positions outside the axis are moved to its end."""
    low, high = _ends(axis)
    return min(1.0, max(0.0, (position - low) / (high - low)))


def _tick_texts(axes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Texts of the ticks, to the right of their axes and above the lines."""
    texts = []
    for number, axis in enumerate(axes):
        low, high = _ends(axis)
        positions = axis.get("tickvals") or [low + (high - low) * part / 4 for part in range(5)]
        for position, text in zip(positions, axis.get("ticktext") or map(short, positions), strict=True):
            texts.append({"x": number, "y": _height(axis, position), "text": escape_hover(text)})
    shared = {"showarrow": False, "xanchor": "left", "xshift": 3, "bgcolor": BACKGROUND, "opacity": 0.9, "borderpad": 1}
    return [{**each, **shared, "font": {"size": 11, "color": INK}} for each in texts]
