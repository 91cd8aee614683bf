"""Figures of the first objective over pairs of the most important parameters, by Optuna."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from optuna.distributions import CategoricalDistribution
from optuna.visualization import plot_contour

from sweeps.report.figures.importance import FEWEST_TRIALS
from sweeps.report.figures.parameter_axis import ParameterAxis, set_log_ticks
from sweeps.report.figures.section import Image, Section, SectionFigure, style_figure
from sweeps.report.figures.study_in_memory import build_study, distribution_of, labels_of
from sweeps.report.figures.style import VALUE_SCALE, value_range
from sweeps.report.report_data import ReportData
from sweeps.texts.wording import counted
from sweeps.tracking.record import TrialRecord

CONTOUR_TRIALS = 120
"""Maximum number of trials of a figure: Optuna interpolates at every pair of their values."""
CONTOUR_PARAMETERS = 4
LEVELS = 12
IMAGE_CONTOURS = 3


def contours(data: ReportData, order: Sequence[str]) -> Section | None:
    """Section with a figure for each pair of the parameters in ``order`` (most important first); None if there is
    nothing to interpolate."""
    trials, record = data.thinned(CONTOUR_TRIALS), data.record
    study = build_study(data, trials)
    figures = []
    for pair in contour_pairs(data, trials, order):
        names = [data.names[path] for path in pair]
        values = [trial.values[0] for trial in study.trials if all(name in trial.params for name in names)]
        # Optuna skips the trials in which one of the two does not exist.
        figure = plot_contour(study, params=names, target=lambda trial: trial.values[0], target_name=record.metric)
        low, high = value_range(values, record.mode)
        figure.update_traces(
            colorscale=VALUE_SCALE,
            reversescale=record.mode == "max",
            contours={"coloring": "fill", "start": low, "end": high, "size": (high - low) / LEVELS or 1.0},
            colorbar={"title": {"text": record.metric, "side": "right"}, "thickness": 12},
            selector={"type": "contour"},
        )
        figure.update_traces(marker={"color": "white", "size": 5}, selector={"type": "scatter"})
        style_figure(figure, showlegend=False)
        # Optuna puts the parameter whose name comes first in the alphabet on the x axis.
        set_log_ticks(figure, [distribution_of(data, path) for path in sorted(pair, key=data.names.__getitem__)])
        figures.append(SectionFigure(figure=figure, label=f"{names[0]} and {names[1]}", height=460))
    if not figures:
        return None
    text = f"{record.metric} over two parameters, interpolated between trials (the points)."
    if len(data.valued) > CONTOUR_TRIALS:
        text += f" From {CONTOUR_TRIALS} of {counted(len(data.valued), 'trial')}, the best among them."
    shown = [each.figure for each in figures[:IMAGE_CONTOURS]]
    image = Image(name="contours", figures=shown, size=(1 + 4.5 * len(shown), 4), columns=len(shown))
    return Section(slug="contours", title="Contours", text=text, figures=figures, image=image)


def contour_pairs(data: ReportData, trials: Sequence[TrialRecord], order: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of parameters (two numbers, or a number and a choice) for which there are trials that do not lie on a line;
    most important first."""
    numbers = {path for path in order if not isinstance(distribution_of(data, path), CategoricalDistribution)}
    chosen = [path for path in order if path in numbers][:CONTOUR_PARAMETERS]
    chosen += [path for path in order if path not in numbers][:1]
    pairs = [
        pair
        for pair in itertools.combinations(sorted(chosen, key=order.index), 2)
        if numbers.intersection(pair) and _covers_a_plane(data, trials, pair)
    ]
    return sorted(pairs, key=lambda pair: (len(numbers.intersection(pair)) < 2, sum(map(order.index, pair))))


def _covers_a_plane(data: ReportData, trials: Sequence[TrialRecord], pair: tuple[str, str]) -> bool:
    """Whether enough trials have both parameters, differ in value, and do not lie on a line."""
    trials = [trial for trial in trials if set(pair) <= set(trial.params)]
    if len(trials) < FEWEST_TRIALS or len({trial.all_values()[0] for trial in trials}) < 2:
        return False
    columns = []
    for path in pair:
        axis, label = ParameterAxis(distribution_of(data, path)), labels_of(data, path)
        columns.append([axis.fraction(axis.position(label(trial.params[path]))) for trial in trials])
    positions = np.array(columns)
    several = all(len(set(column)) >= 3 for column in columns)
    return several and int(np.linalg.matrix_rank(positions - positions.mean(axis=1, keepdims=True), tol=1e-6)) == 2
