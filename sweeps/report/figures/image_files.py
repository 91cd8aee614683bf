"""Plotly figures as PNG, SVG or PDF files, drawn by matplotlib, which needs neither a browser nor a display.

Supported are the parts of our figures: scatter, bar, contour and parallel-coordinates traces on linear, logarithmic,
date and category axes.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator, PercentFormatter
from matplotlib.tri import Triangulation

from sweeps.report.figures.style import GRID, MUTED

DPI = 120
DASHES = {"dot": ":", "dash": "--"}
SYMBOLS = {"x": "X", "square": "s", "star": "*"}
POINTS_PER_PIXEL = 0.9


def write_image(
    file: Path | io.StringIO | io.BytesIO,
    figures: Sequence[go.Figure],
    size: tuple[float, float],
    *,
    title: str = "",
    columns: int = 1,
    file_format: str | None = None,
) -> None:
    """Draw figures into a file.

    Args:
        file: The file.
        figures: The figures, in the order of the grid.
        size: Width and height in inches.
        title: Title of the image.
        columns: Number of figures side by side.
        file_format: Such as ``svg``; default: the file's suffix.

    Raises:
        OSError: The file cannot be written.
    """
    image = Figure(figsize=size, dpi=DPI, layout="constrained")
    if title:
        image.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    parts = image.subfigures(math.ceil(len(figures) / columns), columns, squeeze=False).flat
    for part, figure in zip(parts, figures, strict=False):
        if figure.data and figure.data[0].type == "parcoords":
            _draw_parallel_coordinates(part.add_subplot(), figure.data[0])
        else:
            _draw(part, figure)
    for text in image.findobj(Text):
        text.set_parse_math(False)  # names and choices with two dollar signs would be formulas
    image.savefig(file, format=file_format)


def _draw(part: SubFigure, figure: go.Figure) -> None:
    """Draw the subplots of a figure, in the rows and columns of their axes' domains."""
    layout = figure.layout
    pairs = list(dict.fromkeys((trace.xaxis or "x", trace.yaxis or "y") for trace in figure.data))
    columns, rows = (
        {name: _axis(layout, name).domain or (0, 1) for name in names} for names in zip(*pairs, strict=True)
    )
    across, down = sorted(set(columns.values())), sorted(set(rows.values()), reverse=True)
    ratios = [high - low for low, high in down]
    grid = part.add_gridspec(len(down), len(across), height_ratios=ratios)
    handles: dict[str, Any] = {}
    drawn: dict[str, Axes] = {}
    for x, y in pairs:
        shared_x, shared_y = (_axis(layout, name).matches or name for name in (x, y))
        place = grid[down.index(rows[y]), across.index(columns[x])]
        axes = part.add_subplot(place, sharex=drawn.get(shared_x), sharey=drawn.get(shared_y))
        drawn |= {shared_x: axes, shared_y: axes}
        traces = [trace for trace in figure.data if (trace.xaxis or "x", trace.yaxis or "y") == (x, y)]
        _Subplot(axes, _axis(layout, x), _axis(layout, y), traces).draw(layout)
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if layout.showlegend is not False and len(handles) > 1:
        labels = list(handles)[:: -1 if layout.legend.traceorder == "reversed" else 1]
        fit = int(part.bbox.width / DPI * 14 / (max(map(len, labels)) + 7))
        options: dict[str, Any] = {"loc": "outside upper right", "ncols": max(1, min(fit, len(labels)))}
        legend = part.legend([handles[each] for each in labels], labels, frameon=False, fontsize=9, **options)
        for shown in legend.legend_handles:
            if isinstance(shown, Line2D):
                shown.set_alpha(1.0)


def _axis(layout: go.Layout, name: str) -> Any:
    """Axis of a layout: ``x2`` is its ``xaxis2``."""
    return layout[f"{name[0]}axis{name[1:]}"]


class _Subplot:
    """One pair of axes with its traces."""

    def __init__(self, axes: Axes, x: Any, y: Any, traces: Sequence[Any]) -> None:
        self._axes, self._traces = axes, traces
        self._layouts = {"x": x, "y": y}
        self._categories = {name: _categories(axis, name, traces) for name, axis in self._layouts.items()}

    def draw(self, layout: go.Layout) -> None:
        """Draw the traces, then the axes."""
        self._axes.grid(color=GRID, linewidth=0.8)
        self._axes.set_axisbelow(True)
        self._axes.spines[["top", "right"]].set_visible(False)
        self._axes.spines[["left", "bottom"]].set_color(MUTED)
        bars = [trace for trace in self._traces if trace.type == "bar"]
        groups = [[bar] for bar in bars] if layout.barmode == "overlay" else [bars]
        for group in groups:
            for index, bar in enumerate(group):
                self._draw_bars(
                    bar, index / len(group), 1 / len(group), 0.2 if layout.bargap is None else layout.bargap
                )
        before: Any = None
        for trace in self._traces:
            if trace.type == "contour":
                self._draw_contour(trace)
            elif trace.type != "bar":
                self._draw_scatter(trace, before)
            before = trace
        self._finish_axis("x")
        self._finish_axis("y")

    def _positions(self, values: Any, name: str) -> Any:
        """Positions on a linear axis: indices of categories, days of dates, logarithms."""
        axis, categories = self._layouts[name], self._categories[name]
        if categories:
            indices = {category: index for index, category in enumerate(categories)}
            return np.array([indices[str(value)] for value in values], np.float64)
        if axis.type == "date":
            return np.array([date2num(datetime.fromisoformat(value)) for value in values])  # type: ignore[no-untyped-call]
        numbers = np.array([math.nan if value is None else value for value in values], np.float64)
        return np.log10(numbers) if axis.type == "log" else numbers

    def _draw_scatter(self, trace: Any, before: Any) -> None:
        x, y = self._positions(trace.x, "x"), self._positions(trace.y, "y")
        line, marker, mode = trace.line, trace.marker, trace.mode or "lines"
        label = trace.name if trace.showlegend is not False and trace.name else None
        steps = line.shape == "hv"
        alpha = 1.0 if trace.opacity is None else trace.opacity
        if trace.fill == "tonexty":
            colour, opacity = _colour(trace.fillcolor)
            low = self._positions(before.y, "y")
            self._axes.fill_between(x, low, y, color=colour, alpha=opacity, linewidth=0, label=label)
        elif trace.fill == "tozeroy":
            self._axes.fill_between(x, 0, y, step="post" if steps else None, color=line.color, alpha=0.35, linewidth=0)
        if "lines" in mode and line.width != 0:
            known = ~np.isnan(y) if trace.connectgaps else slice(None)
            self._axes.plot(
                x[known],
                y[known],
                color=line.color,
                linewidth=POINTS_PER_PIXEL * line.width,
                linestyle=DASHES.get(line.dash, "-"),
                drawstyle="steps-post" if steps else "default",
                alpha=alpha,
                label=label,
            )
            label = None
        if "markers" in mode:
            own = isinstance(marker.color, str | None)
            self._axes.scatter(
                x,
                y,
                s=(POINTS_PER_PIXEL * (marker.size or 6)) ** 2,
                c=marker.color or line.color if own else np.asarray(marker.color, float),
                cmap=None if own else _colormap(marker.colorscale),
                marker=SYMBOLS.get(marker.symbol, "o"),
                alpha=alpha if marker.opacity is None else marker.opacity,
                linewidths=0,
                zorder=3,
                label=label,
            )

    def _draw_bars(self, trace: Any, shift: float, share: float, gap: float) -> None:
        """Draw the bars of a trace, which take a share of the width of each position."""
        lies = trace.orientation == "h"
        at, lengths = self._positions(trace.x, "x"), self._positions(trace.y, "y")
        if lies:
            at, lengths = lengths, at
        start = np.zeros_like(lengths) if trace.base is None else np.array(trace.base, np.float64)
        low = at + (shift - 0.5) * (1 - gap)
        high = low + share * (1 - gap)
        corners = [(start, low), (start + lengths, low), (start + lengths, high), (start, high)]
        boxes: Any = np.stack([np.column_stack(each if lies else each[::-1]) for each in corners], axis=1)
        self._axes.add_collection(PolyCollection(boxes, facecolors=trace.marker.color, label=trace.name))
        self._axes.autoscale_view()

    def _draw_contour(self, trace: Any) -> None:
        z = np.array([[math.nan if value is None else value for value in row] for row in trace.z], float)
        rows, columns = np.nonzero(~np.isnan(z))
        x, y = self._positions(trace.x, "x")[columns], self._positions(trace.y, "y")[rows]
        low, high, step = trace.contours.start, trace.contours.end, trace.contours.size
        levels = np.linspace(low, high, round((high - low) / step) + 1)
        colours = _colormap(trace.colorscale, reverse=bool(trace.reversescale))
        # An explicit triangulation: given x and y, matplotlib would first try to read the values as triangles. It is of
        # positions between 0 and 1: none is found if one range is 1e15 times as wide as the other.
        triangles = Triangulation(*((each - each.min()) / np.ptp(each) for each in (x, y))).triangles
        filled = self._axes.tricontourf(
            Triangulation(x, y, triangles), np.clip(z[rows, columns], low, high), levels, cmap=colours
        )
        _add_colorbar(self._axes, filled, trace.colorbar)

    def _finish_axis(self, name: str) -> None:
        """Set the title, the ticks and the range of an axis."""
        axes, axis, categories = self._axes, self._layouts[name], self._categories[name]
        shown, set_limits = (axes.xaxis, axes.set_xlim) if name == "x" else (axes.yaxis, axes.set_ylim)
        shown.set_label_text(axis.title.text or "")
        shown.set_tick_params(colors="#374151", labelsize=5 if len(categories) > 20 else 8)
        if categories:
            shown.set_ticks(range(len(categories)), categories)
            set_limits(-0.6, len(categories) - 0.4)
        elif axis.tickvals is not None:
            shown.set_ticks(np.log10(axis.tickvals) if axis.type == "log" else axis.tickvals, axis.ticktext)
        elif axis.type == "date":
            locator = AutoDateLocator()  # type: ignore[no-untyped-call]
            shown.set_major_locator(locator)
            shown.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        elif (axis.tickformat or "").endswith("%"):
            shown.set_major_formatter(PercentFormatter(1.0, decimals=0))
        if name == "x" and max(map(len, categories or axis.ticktext or ()), default=0) > 6:
            shown.set_tick_params(rotation=20)
        if axis.range is not None:
            set_limits(*(self._positions(axis.range, name) if axis.type == "date" else axis.range))
        elif axis.rangemode == "tozero":
            set_limits(0)
        if axis.showticklabels is False:
            shown.set_tick_params(labelbottom=False, labelleft=False)


def _categories(axis: Any, name: str, traces: Sequence[Any]) -> list[str]:
    """Values of a category axis in order; empty for an axis of numbers or dates."""
    values = [value for trace in traces for value in (trace[name] if trace[name] is not None else ())]
    if axis.type == "date" or not (axis.type == "category" or any(isinstance(value, str) for value in values)):
        return []
    order = axis.categoryarray if axis.categoryarray is not None else ()
    return [str(value) for value in dict.fromkeys([*order, *values])]


def _colormap(scale: Sequence[tuple[float, str]], *, reverse: bool = False) -> Colormap:
    colours = LinearSegmentedColormap.from_list("scale", [(position, colour) for position, colour in scale])
    return colours.reversed() if reverse else colours


def _add_colorbar(axes: Axes, drawn: ScalarMappable, colorbar: Any) -> None:
    figure = axes.get_figure()
    assert figure is not None
    figure.colorbar(drawn, ax=axes, label=colorbar.title.text, pad=0.01)


def _colour(text: str) -> tuple[Any, float]:
    """Colour and opacity of ``#rrggbb`` or ``rgba(r, g, b, a)``."""
    found = re.fullmatch(r"rgba\((\d+), (\d+), (\d+), ([\d.]+)\)", text)
    return (text, 1.0) if found is None else (tuple(int(part) / 255 for part in found.groups()[:3]), float(found[4]))


def _draw_parallel_coordinates(axes: Axes, trace: Any) -> None:
    """Draw a line for each trial; later lines cover earlier ones."""
    heights = []
    for index, dimension in enumerate(trace.dimensions):
        values = np.array(dimension["values"], float)
        low, high = dimension.range or (values.min(), values.max())
        span = high - low or 1.0
        heights.append(np.clip((values - low) / span, 0, 1))
        axes.axvline(index, color=GRID, linewidth=1.5, zorder=0)
        ticks, texts = dimension.tickvals, dimension.ticktext
        if ticks is None:
            ticks = [tick for tick in MaxNLocator(5).tick_values(low, high) if low <= tick <= high]
            texts = [f"{tick:.4g}" for tick in ticks]
        box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1}
        for tick, text in zip(ticks, texts, strict=True):
            axes.text(index + 0.03, (tick - low) / span, text, fontsize=8, va="center", zorder=3, bbox=box)
    lines: Any = np.stack([np.column_stack([range(len(heights)), line]) for line in np.array(heights).T])
    line = trace.line
    drawn = LineCollection(
        lines,
        cmap=_colormap(line.colorscale, reverse=bool(line.reversescale)),
        norm=Normalize(line.cmin, line.cmax),
        linewidths=0.9,
        alpha=0.6,
    )
    drawn.set_array(np.array(line.color, float))
    axes.add_collection(drawn)
    axes.set_xlim(-0.1, len(heights) - 0.5)
    axes.set_ylim(-0.05, 1.05)
    axes.set_xticks(range(len(heights)), [each.label for each in trace.dimensions], fontsize=9, rotation=12)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    _add_colorbar(axes, drawn, line.colorbar)
