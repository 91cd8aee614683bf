"""Figure of a comparison: each sweep's best value so far against trials, time and worker-hours."""

from __future__ import annotations

import html
import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.errors import ConfigError, UserError
from sweeps.report.comparison import BestSoFar, Comparison, print_comparison
from sweeps.report.figures.style import time_unit
from sweeps.report.plain_console import plain_console

if TYPE_CHECKING:
    import plotly.graph_objects as go

SUFFIXES = (".html", ".png", ".svg", ".pdf")
MOST_MARKED = 60
"""Maximum number of points of a line with a marker at each point."""
PANEL_INCHES = (4.4, 4.2)


def check_output(file: Path) -> None:
    """Check the name and the folder of an output file, before the comparison is made.

    Raises:
        UserError: The file's type is not supported, or its folder does not exist.
    """
    if file.suffix not in SUFFIXES:
        raise ConfigError(f"--output={file}: must end in {', '.join(SUFFIXES)}")
    if not file.parent.is_dir():
        raise UserError(f"--output={file}: there is no folder {file.parent}; make it, or give another")


def write_comparison(comparison: Comparison, file: Path) -> None:
    """Write the figure to a file; an HTML file also has the tables, and needs no other file.

    Raises:
        UserError: The file cannot be written.
    """
    try:
        if file.suffix == ".html":
            file.write_text(_html(comparison), encoding="utf-8")
        else:
            _write(comparison, file)
    except OSError as error:
        raise UserError(f"--output={file}: cannot be written ({error.strerror}); give another file") from None


def comparison_figure(comparison: Comparison) -> go.Figure:
    """Figure with panels that share the value axis; worker-hours are left out if a sweep has not recorded them."""
    import plotly.colors
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    from sweeps.report.figures.section import style_figure

    points = [point for each in comparison.sweeps for point in each.curve]
    seconds = max((point.seconds for point in points), default=0.0)
    size, unit = time_unit(seconds)
    panels: list[tuple[str, Callable[[BestSoFar], float]]] = [
        ("trials", lambda point: point.trials),
        (f"time ({unit})", lambda point: point.seconds / size),
    ]
    if all(point.hours is not None for point in points):
        panels.append((comparison.unit, lambda point: point.hours or 0.0))
    figure = style_figure(make_subplots(cols=len(panels), shared_yaxes=True))
    for column, (label, position) in enumerate(panels, start=1):
        for index, each in enumerate(comparison.sweeps):
            colour = plotly.colors.qualitative.D3[index % len(plotly.colors.qualitative.D3)]
            trace = go.Scatter(
                x=[position(point) for point in each.curve],
                y=[point.best for point in each.curve],
                mode="lines+markers" if len(each.curve) <= MOST_MARKED else "lines",
                name=each.record.sweep,
                legendgroup=each.record.sweep,
                showlegend=column == 1,
                line={"color": colour, "width": 2, "shape": "hv"},
                marker={"size": 4},
            )
            figure.add_trace(trace, row=1, col=column)
        figure.update_xaxes(title=label, rangemode="tozero", row=1, col=column)
    figure.update_yaxes(range=_later_range(comparison))
    return figure.update_yaxes(title=f"best {comparison.metric} so far", row=1, col=1)


def _later_range(comparison: Comparison) -> tuple[float, float] | None:
    """Range of the values in the second half of each sweep's trials: the first values are far worse, and would flatten
    the remaining differences. None if all values are the same."""
    later = [point.best for each in comparison.sweeps for point in each.curve[len(each.curve) // 2 :]]
    if not later or min(later) == max(later):
        return None
    margin = 0.1 * (max(later) - min(later))
    return min(later) - margin, max(later) + margin


def _write(comparison: Comparison, file: Path | io.StringIO, file_format: str | None = None) -> None:
    from sweeps.report.figures.image_files import write_image

    figure = comparison_figure(comparison)
    panels = len({trace.xaxis for trace in figure.data})
    write_image(file, [figure], (PANEL_INCHES[0] * panels, PANEL_INCHES[1]), file_format=file_format)


def _html(comparison: Comparison) -> str:
    picture = io.StringIO()
    _write(comparison, picture, "svg")
    drawing = picture.getvalue()
    names = html.escape(" and ".join(each.record.sweep for each in comparison.sweeps))
    console = plain_console(record=True, file=io.StringIO(), width=160)
    print_comparison(comparison, console)
    tables = console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{names}</title>'
        "<style>body{font-family:system-ui,sans-serif;max-width:1200px;margin:2rem auto;padding:0 1rem}"
        "svg{width:100%;height:auto}pre{overflow-x:auto;font-size:13px;line-height:1.5}</style></head><body>"
        f"<h1>{names}</h1>{drawing[drawing.index('<svg') :]}{tables}</body></html>\n"
    )
