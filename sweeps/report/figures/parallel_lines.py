"""Figure of parallel coordinates from plain lines.

Plotly's own kind of this figure compiles code in the browser, which the service's pages forbid. This one does not let
its axes be brushed, but its lines lead to their trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from sweeps.report.figures.parallel_coordinates import chosen_for_lines, describe_lines, make_axes
from sweeps.report.figures.section import Section, SectionFigure, escape_hover, style_figure
from sweeps.report.figures.style import BACKGROUND, BEST_COLOUR, CHOSEN_COLOURS, INK, RANK_COLOURS
from sweeps.report.report_data import ReportData
from sweeps.tracking.record import TrialRecord
from sweeps.tracking.values import short

RANKS: dict[str, float] = {
    "worse half": 1.0,
    "better half": 0.5,
    "best quarter": 0.25,
    "best tenth": 0.1,
    "best": 0.0,
}
"""Groups of trials, worst first, and the share of the trials in each group or a better one."""


def parallel_lines(data: ReportData, order: Sequence[str], marked: Sequence[str] = ()) -> Section | None:
    """Section with the figure; None if there is no value or no parameter.

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
) -> go.Scatter:
    """One trace for the lines of several trials."""
    x: list[float | None] = []
    y: list[float | None] = []
    ids: list[str | None] = []
    for index in shown:
        x += [*range(len(axes)), None]
        y += [*(_height(axis, axis["values"][index]) for axis in axes), None]
        ids += [*[trials[index].trial] * len(axes), None]
    return go.Scatter(
        x=x,
        y=y,
        customdata=ids,
        mode="lines",
        name=name,
        line={"color": colour, "width": width},
        hovertemplate="trial %{customdata}<extra></extra>",
    )


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
