"""Sections of a report: figures with a title, text and an image file for use outside of the page."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import plotly.graph_objects as go

from sweeps.report.figures.style import BACKGROUND, GRID, INK, MUTED, WEBGL_FROM
from sweeps.report.formatting import shorten
from sweeps.texts.wording import counted
from sweeps.tracking.mlflow_texts import describe
from sweeps.tracking.record import TrialRecord

LONGEST_HOVER = 160
MOST_DESCRIBED = 500
"""Maximum number of trials in a figure whose labels show the parameters: more would make the page large, and its table
shows them."""


@dataclass(frozen=True, kw_only=True)
class SectionFigure:
    figure: go.Figure
    label: str = ""
    """Text of the figure's tab, or its title in a grid."""
    height: int = 420
    """Height in pixels."""
    min_width: int = 0
    """Minimum width in pixels; on a narrower screen the figure scrolls."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image file beside the page."""

    name: str
    """File name without its suffix."""
    figures: Sequence[go.Figure]
    size: tuple[float, float] = (8, 4.5)
    """Size in inches."""
    columns: int = 1
    """Number of figures side by side."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the report."""

    slug: str
    title: str
    text: str
    """Explanation of what the figures show and how to read them."""
    figures: Sequence[SectionFigure] = ()
    layout: Literal["choice", "grid"] = "choice"
    """``choice``: one figure at a time, chosen by tabs; ``grid``: all of them."""
    image: Image | None = None


def style_figure(figure: go.Figure, **layout: Any) -> go.Figure:
    """Apply the style that all figures share."""
    figure.update_layout(
        template="none",
        title=None,
        font={"family": "system-ui, sans-serif", "size": 12, "color": INK},
        margin={"l": 64, "r": 16, "t": 16, "b": 48},
        hoverlabel={"align": "left", "bgcolor": BACKGROUND, "bordercolor": MUTED},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "xanchor": "left", "x": 0.0},
        **layout,
    )
    axes = {"gridcolor": GRID, "zeroline": False, "automargin": True, "exponentformat": "power"}
    figure.update_xaxes(axes)
    figure.update_yaxes(axes)
    return figure


def scatter_for(points: int) -> Any:
    """Return the kind of trace that draws this number of points quickly in a browser."""
    return go.Scattergl if points >= WEBGL_FROM else go.Scatter


def lines_trace(
    lines: Iterable[tuple[str, Iterable[float], Iterable[float]]],
    name: str,
    colour: str,
    width: float,
    hover: str,
    scatter: type = go.Scatter,
    **options: Any,
) -> Any:
    """One trace for the lines of several trials, each given by the trial's id, x and y; this keeps the legend short and
    the page fast."""
    points = [[*zip(x, y, itertools.repeat(trial)), (None, None, None)] for trial, x, y in lines]
    x, y, ids = zip(*itertools.chain(*points), strict=True)
    line = {"color": colour, "width": width}
    return scatter(x=x, y=y, customdata=ids, name=name, line=line, hovertemplate=f"{hover}<extra></extra>", **options)


def escape_hover(text: str) -> str:
    """Escape text for a hover label, in which Plotly interprets some HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def trial_hover(trial: TrialRecord, count: int) -> str:
    """Hover label of a trial."""
    name = f"trial {trial.trial}, {trial.state}, {counted(trial.steps, 'step')}"
    if count > MOST_DESCRIBED:
        return name
    text = shorten(describe(trial.params), LONGEST_HOVER)
    lines = textwrap.wrap(text, 60, break_long_words=False, break_on_hyphens=False) or [""]
    return "<br>".join([name, *map(escape_hover, lines)])
