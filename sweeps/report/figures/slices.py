"""Figures of the first objective against each parameter on its own, by Optuna."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.visualization import plot_slice

from sweeps.report.figures.importance import FEWEST_TRIALS
from sweeps.report.figures.parameter_axis import ParameterAxis, set_log_ticks
from sweeps.report.figures.section import Image, Section, SectionFigure, style_figure
from sweeps.report.figures.study_in_memory import build_study, distribution_of, labels_of
from sweeps.report.figures.style import BACKGROUND, BEST_COLOUR, SCALE, robust_range
from sweeps.report.report_data import ReportData
from sweeps.texts.wording import counted

SLICE_TRIALS = 600
MOST_SLICES = 16
IMAGE_SLICES, IMAGE_COLUMNS = 9, 3


def slices(data: ReportData, order: Sequence[str], marked: str | None = None) -> Section | None:
    """Section with a grid of figures of the parameters in ``order`` (most important first), with a star on the
    ``marked`` trial; None if no trial with a value has any of them."""
    trials = data.thinned(SLICE_TRIALS)
    known = [path for path in order if any(path in trial.params for trial in trials)]
    if not known:
        return None
    study = build_study(data, trials)
    metric = data.record.metric
    limits = robust_range([trial.all_values()[0] for trial in data.valued], data.record.mode)
    figures = []
    for path in known[:MOST_SLICES]:
        name = data.names[path]
        figure = plot_slice(study, params=[name], target=lambda trial: trial.values[0], target_name=metric)
        # Optuna colours the points by their trial's number in the study.
        figure.for_each_trace(lambda trace: trace.update(customdata=[trials[int(n)].trial for n in trace.marker.color]))
        figure.update_traces(hovertemplate="trial %{customdata}<br>%{x}<br><b>%{y:.5g}</b><extra></extra>")
        figure.update_traces(marker={"size": 6, "line": {"width": 0}, "showscale": False, "colorscale": SCALE})
        _name_choices(figure, distribution_of(data, path))
        _mark(figure, data, path, marked)
        set_log_ticks(figure, [distribution_of(data, path)])
        _show_whole_range(figure, data, path)
        style_figure(figure, showlegend=False)
        figure.update_layout(margin={"l": 56, "r": 12, "t": 8, "b": 40})
        figure.update_yaxes(title=None, range=limits)
        figure.update_xaxes(title=None)
        figures.append(SectionFigure(figure=figure, label=path, height=240))
    first = ", the most important first" if len(data.valued) >= FEWEST_TRIALS else ""
    text = f"{metric} against each parameter{first}; the stronger the colour, the later the trial."
    if len(known) > MOST_SLICES:
        text += f" {MOST_SLICES} of {len(known)} parameters."
    if len(data.valued) > SLICE_TRIALS:
        text += f" {SLICE_TRIALS} of {counted(len(data.valued), 'trial')}, the best among them."
    shown = figures[:IMAGE_SLICES]
    size = (10, 0.4 + 2.6 * math.ceil(len(shown) / IMAGE_COLUMNS))
    image = Image(
        name="slices",
        figures=[
            go.Figure(each.figure).update_xaxes(title=data.names[each.label]).update_yaxes(title=metric)
            for each in shown
        ],
        size=size,
        columns=min(IMAGE_COLUMNS, len(shown)),
    )
    return Section(slug="slices", title="Slices", text=text, figures=figures, layout="grid", image=image)


def _mark(figure: go.Figure, data: ReportData, path: str, trial: str | None) -> None:
    """Put a star on a trial that has the parameter and a value."""
    record = next((each for each in data.having(path) if each.trial == trial), None)
    if record is None:
        return
    value = labels_of(data, path)(record.params[path])
    is_number = isinstance(distribution_of(data, path), FloatDistribution | IntDistribution)
    figure.add_scatter(
        x=[value if is_number else str(value)],
        y=[record.all_values()[0]],
        mode="markers",
        customdata=[record.trial],
        marker={"symbol": "star", "size": 15, "color": BEST_COLOUR, "line": {"width": 1, "color": BACKGROUND}},
        hovertemplate="trial %{customdata}<br>%{x}<br><b>%{y:.5g}</b><extra></extra>",
    )


def _name_choices(figure: go.Figure, distribution: BaseDistribution) -> None:
    """Show choices as they are: Optuna shows them in Python's notation, with quotes and escapes."""
    if isinstance(distribution, CategoricalDistribution) and figure.layout.xaxis.type == "category":
        names = {repr(choice): str(choice) for choice in distribution.choices}
        figure.for_each_trace(lambda trace: trace.update(x=[names[text] for text in trace.x]))
        figure.update_xaxes(categoryarray=[names[text] for text in figure.layout.xaxis.categoryarray])


def _show_whole_range(figure: go.Figure, data: ReportData, path: str) -> None:
    """Let the axis of a number show its whole range instead of only the tried part."""
    distribution = distribution_of(data, path)
    if not isinstance(distribution, CategoricalDistribution):
        low, high = ParameterAxis(distribution).ends
        margin = 0.05 * (high - low) or 0.5
        figure.update_xaxes(range=(low - margin, high + margin))
