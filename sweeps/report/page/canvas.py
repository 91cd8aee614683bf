"""What the figures drawn by matplotlib share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sweeps.report.page.style import BEST_COLOUR, GRID, MUTED, STATE_COLOURS


def one_axes(figure: Figure, x: str, y: str, title: str) -> Axes:
    axes = figure.add_subplot()
    plain(axes)
    axes.set(xlabel=x, ylabel=y)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    return axes


def plain(axes: Axes) -> None:
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(MUTED)
    axes.tick_params(colors="#374151", labelsize=9)


def legend(axes: Axes, handles: Sequence[Any]) -> None:
    axes.legend(handles=list(handles), loc="lower right", bbox_to_anchor=(1, 1), ncols=6, frameon=False, fontsize=9)


def state_handles(states: set[str], best: str | None = None) -> list[Line2D]:
    handles = [
        Line2D([], [], marker="o", linestyle="", color=colour, label=state)
        for state, colour in STATE_COLOURS.items()
        if state in states
    ]
    return handles if best is None else [*handles, Line2D([], [], color=BEST_COLOUR, linewidth=2, label=best)]
