"""What the parameters do, drawn by matplotlib: importance, slices, parallel coordinates, contours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.tri import Triangulation

from sweeps.report.page.canvas import one_axes, plain
from sweeps.report.page.parameters import AXES, CONTOUR_TRIALS, EVALUATORS, SLICE_TRIALS, Importance, labels
from sweeps.report.page.report_data import Material, evenly, values_of
from sweeps.report.page.scale import Scale
from sweeps.report.page.study import distribution_of, label
from sweeps.report.page.style import GRID, MUTED, STATE_COLOURS, robust_range
from sweeps.tracking.record import TrialRecord

ON_LINES = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1}
MOST_BARS, MOST_SLICES, MOST_LINES, MOST_CONTOURS = 16, 9, 200, 3


def importance(figure: Figure, material: Material, found: Mapping[str, Importance], order: Sequence[str]) -> None:
    """Bars for each parameter, by each of Optuna's evaluators."""
    names = [material.names[path] for path in order[:MOST_BARS]][::-1]
    axes = one_axes(figure, f"share of {material.record.metric}", "", material.record.sweep)
    height = 0.8 / len(EVALUATORS)
    for index, (evaluator, colour) in enumerate(reversed(EVALUATORS.items())):
        shares = found.get(evaluator, {})
        places = [place + (index - 0.5) * height for place in range(len(names))]
        axes.barh(places, [shares.get(name, 0.0) for name in names], height, color=colour, label=evaluator)
    axes.set_yticks(range(len(names)), labels(material, order[:MOST_BARS])[::-1])
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, fontsize=9, reverse=True)


def slices(figure: Figure, material: Material, order: Sequence[str]) -> None:
    """The first objective against each of the most important parameters."""
    record, chosen = material.record, order[:MOST_SLICES]
    columns = min(3, len(chosen))
    limits = robust_range([values_of(trial)[0] for trial in material.valued], record.mode)
    for index, path in enumerate(chosen):
        axes = figure.add_subplot(math.ceil(len(chosen) / columns), columns, index + 1)
        plain(axes)
        scale = Scale(distribution_of(material, path))
        trials = [trial for trial in material.thinned(SLICE_TRIALS) if path in trial.params]
        axes.scatter(
            [scale.place(label(trial.params[path])) for trial in trials],
            [values_of(trial)[0] for trial in trials],
            c=[STATE_COLOURS[trial.state] for trial in trials],
            s=12,
            alpha=0.6,
            linewidths=0,
        )
        ticks, texts = scale.ticks()
        axes.set_xticks(ticks, texts, fontsize=8, rotation=20 if max(map(len, texts)) > 6 else 0)
        axes.set_ylim(limits)
        axes.set_xlabel(material.names[path], fontsize=9)
    figure.supylabel(record.metric, fontsize=10)


def parallel(figure: Figure, material: Material, order: Sequence[str]) -> None:
    """A line for each trial across the axes of the most important parameters, the best ones above the others."""
    record, chosen = material.record, order[:AXES]
    best = material.ranked[: MOST_LINES // 10]
    trials = [*best, *evenly(material.ranked[len(best) :], MOST_LINES - len(best))][::-1]
    values = [values_of(trial)[0] for trial in trials]
    low, high = robust_range(values, record.mode) or (min(values), max(values))
    axes = figure.add_subplot()
    columns = []
    for index, path in enumerate(chosen):
        scale = Scale(distribution_of(material, path))
        columns.append([_height(scale, path, trial) for trial in trials])
        axes.axvline(index, color=GRID, linewidth=1.5, zorder=0)
        for tick, text in zip(*scale.ticks(), strict=True):
            axes.text(index + 0.03, scale.part(tick), text, fontsize=8, va="center", zorder=3, bbox=ON_LINES)
    lines = [[(index, column[row]) for index, column in enumerate(columns)] for row in range(len(trials))]
    colours = "viridis" if record.mode == "min" else "viridis_r"
    drawn = LineCollection(lines, cmap=colours, norm=Normalize(low, high), linewidths=0.9, alpha=0.7)
    drawn.set_array(np.array(values))
    axes.add_collection(drawn)
    axes.set_xlim(-0.1, len(chosen) - 0.5)
    axes.set_ylim(-0.18, 1.05)
    axes.set_xticks(range(len(chosen)), [material.names[path] for path in chosen], fontsize=9, rotation=12)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.set_title(record.sweep, loc="left", fontsize=11, fontweight="bold")
    figure.colorbar(drawn, ax=axes, label=record.metric, pad=0.01)


def contours(figure: Figure, material: Material, pairs: Sequence[tuple[str, str]]) -> None:
    """The first objective over pairs of parameters, interpolated between trials."""
    record = material.record
    values = [values_of(trial)[0] for trial in material.valued]
    low, high = robust_range(values, record.mode) or (min(values), max(values))
    for index, pair in enumerate(pairs):
        axes = figure.add_subplot(1, len(pairs), index + 1)
        plain(axes)
        trials = [trial for trial in material.ranked if all(path in trial.params for path in pair)]
        trials = evenly(trials, 4 * CONTOUR_TRIALS)
        scales = [Scale(distribution_of(material, path)) for path in pair]
        x, y = (
            [scale.place(label(trial.params[path])) for trial in trials]
            for scale, path in zip(scales, pair, strict=True)
        )
        z = np.clip([values_of(trial)[0] for trial in trials], low, high)
        levels, colours = np.linspace(low, high, 13), "viridis" if record.mode == "min" else "viridis_r"
        # Its own triangles: given plain coordinates, matplotlib first tries to read the values as such.
        filled = axes.tricontourf(Triangulation(x, y), z, levels=levels, cmap=colours)
        axes.scatter(x, y, s=6, color="white", edgecolors=MUTED, linewidths=0.3)
        for which, scale in zip((axes.xaxis, axes.yaxis), scales, strict=True):
            which.set_ticks(*scale.ticks(), fontsize=8)
        axes.set(xlabel=material.names[pair[0]], ylabel=material.names[pair[1]])
        if index == len(pairs) - 1:
            figure.colorbar(filled, ax=figure.axes, label=record.metric, pad=0.01)


def _height(scale: Scale, path: str, trial: TrialRecord) -> float:
    """Below the axis, where the trial does not have the parameter."""
    return scale.part(scale.place(label(trial.params[path]))) if path in trial.params else -0.14
