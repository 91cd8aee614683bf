"""What a page is built of: sections, each with one figure, a choice of several, or a grid of small ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import plotly.graph_objects as go

from sweeps.report.page.style import GRID, MUTED


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """One figure."""

    figure: go.Figure
    label: str = ""
    """What a reader chooses it by, or its title in a grid."""
    height: int = 420
    """Pixels."""
    min_width: int = 0
    """Pixels; on a narrower screen it is scrolled."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page."""

    slug: str
    title: str
    text: str
    """What it shows and how to read it."""
    drawings: Sequence[Drawing] = ()
    layout: Literal["choice", "grid"] = "choice"


def polish(figure: go.Figure, **layout: Any) -> go.Figure:
    """The look that all figures share."""
    figure.update_layout(
        template="none",
        title=None,
        font={"family": "system-ui, sans-serif", "size": 12, "color": "#1f2937"},
        margin={"l": 64, "r": 16, "t": 16, "b": 48},
        hoverlabel={"align": "left", "bgcolor": "white", "bordercolor": MUTED},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "xanchor": "left", "x": 0.0},
        **layout,
    )
    axes = {"gridcolor": GRID, "zeroline": False, "automargin": True, "exponentformat": "power"}
    figure.update_xaxes(axes)
    figure.update_yaxes(axes)
    return figure
