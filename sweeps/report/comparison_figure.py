"""Best value against trials, time and worker-hours, a line for each sweep; drawn without a browser or a display."""

from __future__ import annotations

import html
import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.errors import ConfigError, UserError
from sweeps.report.comparison import Comparison, Progress, print_comparison
from sweeps.report.terminal import plain_console

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".html", ".png", ".svg", ".pdf")
Axis = Callable[[Progress], float | None]
UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))
MARKED_UP_TO = 60
"""Trials of a sweep whose improvements are marked on its line."""


def check_output(file: Path) -> None:
    """
    Raises:
        UserError: It is of a type that is not drawn, or in no folder.
    """
    if file.suffix not in SUFFIXES:
        raise ConfigError(f"--output={file}: must end in {', '.join(SUFFIXES)}")
    if not file.parent.is_dir():
        raise UserError(f"--output={file}: there is no folder {file.parent}; make it, or give another")


def write_comparison(comparison: Comparison, file: Path) -> None:
    """Write the figure; as HTML, one page that needs nothing else, with the tables.

    Raises:
        UserError: The file cannot be written.
    """
    try:
        _write(comparison, file)
    except OSError as error:
        raise UserError(f"--output={file}: cannot be written ({error.strerror}); give another file") from None


def _write(comparison: Comparison, file: Path) -> None:
    figure = draw(comparison)
    if file.suffix != ".html":
        figure.savefig(file, dpi=160)
        return
    picture = io.StringIO()
    figure.savefig(picture, format="svg")
    drawing = picture.getvalue()
    names = " and ".join(each.record.sweep for each in comparison.sweeps)
    console = plain_console(record=True, file=io.StringIO(), width=160)
    print_comparison(comparison, console)
    tables = console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
    file.write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(names)}</title>'
        "<style>body{font-family:system-ui,sans-serif;max-width:1200px;margin:2rem auto;padding:0 1rem}"
        "svg{width:100%;height:auto}pre{overflow-x:auto;font-size:13px;line-height:1.5}</style></head><body>"
        f"<h1>{html.escape(names)}</h1>{drawing[drawing.index('<svg') :]}{tables}</body></html>\n",
        encoding="utf-8",
    )


def draw(comparison: Comparison) -> Figure:
    """Three panels that share the value's axis; a panel that nothing is known for is left out."""
    from matplotlib.figure import Figure

    seconds = max((point.seconds for each in comparison.sweeps for point in each.curve), default=0.0)
    unit, size = next(((unit, size) for unit, size in UNITS if seconds >= 2 * size), UNITS[-1])
    panels: list[tuple[str, Axis]] = [
        ("trials", lambda point: point.trials),
        (f"time ({unit})", lambda point: point.seconds / size),
    ]
    if all(point.hours is not None for each in comparison.sweeps for point in each.curve):
        panels.append((comparison.unit, lambda point: point.hours))
    figure = Figure(figsize=(4.4 * len(panels), 4.2), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (label, position) in zip(axes, panels, strict=True):
        for index, each in enumerate(comparison.sweeps):
            at = [position(point) or 0.0 for point in each.curve]
            marker = "o" if len(at) <= MARKED_UP_TO else None
            values = [point.best for point in each.curve]
            axis.step(at, values, where="post", color=f"C{index}", marker=marker, markersize=3, label=each.record.sweep)
        axis.set_xlabel(label)
        axis.set_xlim(left=0)
        axis.grid(color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel(f"best {comparison.metric} so far")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=2, frameon=False)
    return figure
