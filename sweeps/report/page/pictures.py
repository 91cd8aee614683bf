"""The figures as PNG files, for slides and mails; by matplotlib, which needs no browser."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from sweeps.report.page.canvas import legend, one_axes, state_handles
from sweeps.report.page.learning_curves import best_line, seconds_in
from sweeps.report.page.parameter_pictures import (
    MOST_BARS,
    MOST_CONTOURS,
    MOST_SLICES,
    contours,
    importance,
    parallel,
    slices,
)
from sweeps.report.page.parameters import Importance, by_importance, contour_pairs
from sweeps.report.page.report_data import Material, values_of
from sweeps.report.page.style import BEST_COLOUR, STARTING_COLOUR, STATE_COLOURS, robust_range, time_unit
from sweeps.report.page.timeline import Bar, bars, merged, natural

DPI = 120
WIDE = (8, 4.5)

Drawer = tuple[str, tuple[float, float], Callable[[Figure], None]]
"""Name of a picture, its size in inches, and what draws it."""


def draw_pictures(material: Material, found: Sequence[Mapping[str, Importance]], folder: Path) -> list[Path]:
    """Write a PNG file for each figure that this sweep has something to show in; their paths.

    Args:
        material: The sweep.
        found: ``importances`` of each objective.
        folder: Where to write.
    """
    paths = []
    for name, size, draw in _drawers(material, found) if material.valued else ():
        figure = Figure(figsize=size, dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1])
    return paths


def _drawers(material: Material, found: Sequence[Mapping[str, Importance]]) -> Iterator[Drawer]:
    order = by_importance(material, found[0])
    yield "best_so_far", WIDE, partial(_best_so_far, material=material)
    if material.curves:
        yield "learning_curves", WIDE, partial(_curves, material=material)
    if len(material.record.metrics) > 1:
        yield "pareto_front", (7, 5.5), partial(_front, material=material)
    if order:
        yield "parallel_coordinates", (12, 5), partial(parallel, material=material, order=order)
        height = 2.6 * math.ceil(len(order[:MOST_SLICES]) / 3)
        yield "slices", (10, height), partial(slices, material=material, order=order)
    if any(found):
        height = 1.4 + 0.34 * len(order[:MOST_BARS])
        yield "importance", (8, height), partial(importance, material=material, found=found[0], order=order)
    if pairs := contour_pairs(material, order)[:MOST_CONTOURS]:
        yield "contours", (1 + 4.5 * len(pairs), 4), partial(contours, material=material, pairs=pairs)
    if of_trials := bars(material):
        rows = len({bar.row for bar in of_trials})
        yield "timeline", (10, min(9, 1.6 + 0.32 * rows)), partial(_timeline, material=material, found=of_trials)


def _best_so_far(figure: Figure, material: Material) -> None:
    record, trials = material.record, sorted(material.valued, key=lambda trial: seconds_in(material, trial))
    unit, name = time_unit(max(seconds_in(material, trial) for trial in trials))
    axes = one_axes(figure, f"{name} since the start", record.metric, record.sweep)
    places = [seconds_in(material, trial) / unit for trial in trials]
    values = [values_of(trial)[0] for trial in trials]
    axes.scatter(places, values, c=[STATE_COLOURS[trial.state] for trial in trials], s=18, alpha=0.75, linewidths=0)
    line = [math.nan if value is None else value for value in best_line(0, record.mode, trials)]
    axes.step(places, line, where="post", color=BEST_COLOUR, linewidth=2)
    axes.set_ylim(robust_range(values, record.mode))
    legend(axes, state_handles({trial.state for trial in trials}, "best so far"))


def _curves(figure: Figure, material: Material) -> None:
    record = material.record
    axes = one_axes(figure, "steps", record.metric, record.sweep)
    by_id = {trial.trial: trial for trial in record.trials}
    best = record.best.trial if record.best is not None else None
    opacity = 0.9 if len(material.curves) <= 20 else 0.4
    for trial, curve in material.curves.items():
        colour = BEST_COLOUR if trial == best else STATE_COLOURS[by_id[trial].state]
        steps, values = zip(*curve, strict=True)
        style: dict[str, Any] = (
            {"linewidth": 2.5, "zorder": 3} if trial == best else {"linewidth": 1.2, "alpha": opacity}
        )
        axes.plot(steps, values, color=colour, marker="o" if len(curve) == 1 else "", markersize=4, **style)
        if by_id[trial].state in ("pruned", "stopped", "failed"):
            axes.plot(steps[-1], values[-1], color=colour, marker="x", markersize=5, alpha=opacity)
    axes.set_ylim(robust_range([point.value for curve in material.curves.values() for point in curve], record.mode))
    states = {by_id[trial].state for trial in material.curves}
    legend(axes, state_handles(states, None if best is None else f"best: {best}"))


def _front(figure: Figure, material: Material) -> None:
    record = material.record
    axes = one_axes(figure, record.metrics[0], record.metrics[1], record.sweep)
    x, y = zip(*[values_of(trial)[:2] for trial in material.valued], strict=True)
    axes.scatter(x, y, c=[STATE_COLOURS[trial.state] for trial in material.valued], s=16, alpha=0.5, linewidths=0)
    front = sorted(values_of(trial)[:2] for trial in record.front)
    if front:
        axes.plot(*zip(*front, strict=True), color=BEST_COLOUR, marker="o", linestyle=":", linewidth=1.2, markersize=5)
    axes.set_xlim(robust_range(x, record.modes[0]))
    axes.set_ylim(robust_range(y, record.modes[1]))
    legend(axes, state_handles({trial.state for trial in material.valued}, "Pareto front"))


def _timeline(figure: Figure, material: Material, found: Sequence[Bar]) -> None:
    rows = sorted({bar.row for bar in found}, key=natural)
    place = {row: index for index, row in enumerate(rows)}
    unit, name = time_unit(max(bar.ended for bar in found))
    axes = one_axes(figure, f"{name} since the start", "", material.record.sweep)
    drawn = merged(found)
    for row in rows:
        of_row = [bar for bar in drawn if bar.row == row]
        parts = [(bar.held, bar.trained, STARTING_COLOUR) for bar in of_row]
        parts += [(bar.trained, bar.ended, STATE_COLOURS[bar.state]) for bar in of_row]
        axes.broken_barh(
            [(start / unit, (end - start) / unit) for start, end, _ in parts],
            (place[row] - 0.4, 0.8),
            facecolors=[colour for _, _, colour in parts],
        )
    axes.set_yticks(range(len(rows)), rows, fontsize=9 if len(rows) <= 20 else 5)
    axes.invert_yaxis()
    states = {bar.state for bar in found}
    handles = [Patch(color=colour, label=state) for state, colour in STATE_COLOURS.items() if state in states]
    legend(axes, [Patch(color=STARTING_COLOUR, label="starting"), *handles])
