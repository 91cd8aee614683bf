"""Learning curves of a sweep: a metric against steps, of all trials or a selection of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import plotly.graph_objects as go

from sweeps.config.objectives import as_loss
from sweeps.report.figures.section import Image, Section, SectionFigure, lines_trace, scatter_for, style_figure
from sweeps.report.figures.style import BEST_COLOUR, CHOSEN_COLOURS, END_MARKS, MUTED, STATE_COLOURS, count_outside
from sweeps.report.formatting import shorten
from sweeps.report.report_data import ReportData
from sweeps.tracking.metric_history import HistoryPoint
from sweeps.tracking.mlflow_texts import describe
from sweeps.tracking.record import SweepRecord, TrialRecord

ValueAxis = Literal["good", "all", "log"]
"""Range of the value axis: the good curves, all values, or all values on a logarithmic scale."""

GOOD_SHARE, FEWEST_GOOD = 0.25, 3
"""Share of the best trials whose curves the axis must show, and the minimum number of these trials."""
WARM_UP = 0.25
"""Share of a curve, from its start, that the axis may leave out, since losses begin far above their final values."""
WORTH_CUTTING = 2.0
"""The axis leaves values out if all values span this many times the range of the good curves."""
LONGEST_NAME = 60


@dataclass(frozen=True)
class LearningCurves:
    """Data of the figure of learning curves."""

    record: SweepRecord
    histories: Mapping[str, Sequence[HistoryPoint]]
    """Reported points by trial, in the order of their steps."""
    chosen: Sequence[str] = ()
    """Trials that the reader compares."""

    @cached_property
    def best(self) -> str | None:
        """Id of the best trial."""
        return self.record.best.trial if self.record.best is not None else None

    @cached_property
    def trials(self) -> list[TrialRecord]:
        """Trials with a curve; the best trial comes last, so that it is drawn above the others."""
        found = [trial for trial in self.record.all_trials if self.histories.get(trial.trial)]
        return sorted(found, key=lambda trial: trial.trial == self.best)

    @cached_property
    def values(self) -> list[float]:
        return [point.value for trial in self.trials for point in self.histories[trial.trial]]

    @cached_property
    def limits(self) -> tuple[float, float] | None:
        """Range of the value axis that shows the best and the chosen trials without their warm-up; None if that would
        leave out almost nothing."""
        valued = [trial for trial in self.trials if trial.value is not None and trial.state != "failed"]
        ranked = sorted(valued, key=lambda trial: as_loss(trial.value or 0.0, self.record.mode))
        good = [trial.trial for trial in ranked[: max(FEWEST_GOOD, round(GOOD_SHARE * len(self.trials)))]]
        curves = [self.histories[trial] for trial in (*good, *self.chosen) if trial in self.histories]
        shown = [point.value for curve in curves for point in curve[int(WARM_UP * len(curve)) :]]
        if not shown or min(shown) == max(shown):
            return None
        low, high = min(shown), max(shown)
        if max(self.values) - min(self.values) <= WORTH_CUTTING * (high - low):
            return None
        margin = 0.06 * (high - low)
        return low - margin, high + margin

    @property
    def outside(self) -> int:
        """Number of points outside the value axis."""
        return count_outside(self.values, self.limits)

    @property
    def selection(self) -> str:
        """Description of the trials with a curve; empty if all that have reported a value have one."""
        count, total = len(self.trials), sum(trial.value is not None for trial in self.record.trials)
        return (
            f"{count} of {total:,} trials: the best ones, and an even selection of the others" if count < total else ""
        )


def learning_curves(
    data: ReportData, metric: str | None = None, chosen: Sequence[str] = (), axis: ValueAxis = "good"
) -> Section | None:
    """Section with the learning curves; None if nothing was reported.

    Args:
        data: The sweep, with the histories of this metric.
        metric: Name of the metric; default: the first objective.
        chosen: Trials to compare, each drawn in a colour of its own before the others, which are pale.
        axis: Range of the value axis.
    """
    curves = LearningCurves(data.record, data.curves, chosen)
    if not curves.trials:
        return None
    figure = _compared(curves) if chosen else _by_state(curves)
    style_figure(figure, hovermode="closest")
    figure.update_xaxes(title="steps")
    figure.update_yaxes(title=metric or data.record.metric)
    if axis == "log":
        figure.update_yaxes(type="log")
    elif axis == "good":
        figure.update_yaxes(range=curves.limits)
    text = "A cross is where a trial was stopped early, a square where it failed."
    text += f" {curves.selection}." if curves.selection else ""
    if axis == "good" and curves.outside:
        text += " The axis shows the good curves; double-click the figure to see all."
    figures = [SectionFigure(figure=figure, height=460)]
    image = Image(name="learning_curves", figures=[figure])
    return Section(slug="curves", title="Learning curves", text=text, figures=figures, image=image)


def _by_state(curves: LearningCurves) -> go.Figure:
    figure = go.Figure()
    scatter = scatter_for(len(curves.values))
    for state, colour in STATE_COLOURS.items():
        trials = [trial for trial in curves.trials if trial.state == state and trial.trial != curves.best]
        if trials:
            opacity = 1.0 if len(trials) <= 20 else 0.55 if len(trials) <= 60 else 0.35
            figure.add_trace(_lines(curves, trials, scatter, state, colour, opacity=opacity, width=1.5))
            _mark_ends(figure, curves, trials, state, colour)
    if curves.trials[-1].trial == curves.best:
        best = curves.trials[-1:]
        figure.add_trace(_lines(curves, best, go.Scatter, f"best: {curves.best}", BEST_COLOUR, width=3))
        _mark_ends(figure, curves, best, f"best: {curves.best}", BEST_COLOUR)
    return figure


def _compared(curves: LearningCurves) -> go.Figure:
    """Figure with the chosen trials in their own colours and all others in a pale one."""
    figure = go.Figure()
    scatter = scatter_for(len(curves.values))
    others = [trial for trial in curves.trials if trial.trial not in curves.chosen]
    if others:
        figure.add_trace(_lines(curves, others, scatter, "other trials", MUTED, opacity=0.25, width=1))
    by_id = {trial.trial: trial for trial in curves.trials}
    compared = [by_id[trial] for trial in curves.chosen if trial in by_id]
    for index, trial in enumerate(compared):
        colour, name = CHOSEN_COLOURS[index % len(CHOSEN_COLOURS)], _name(trial, compared, curves.best)
        figure.add_trace(_lines(curves, [trial], go.Scatter, name, colour, width=2.5))
        _mark_ends(figure, curves, [trial], name, colour)
    return figure


def _name(trial: TrialRecord, compared: Sequence[TrialRecord], best: str | None) -> str:
    """Name of a trial in the legend, with the parameters in which the compared trials differ."""
    params: dict[str, Any] = {
        path: value for path, value in trial.params.items() if any(each.params.get(path) != value for each in compared)
    }
    name = f"{trial.trial} (best)" if trial.trial == best else trial.trial
    return shorten(f"{name}: {describe(params)}" if params else name, LONGEST_NAME)


def _lines(
    curves: LearningCurves,
    trials: Sequence[TrialRecord],
    scatter: type,
    name: str,
    colour: str,
    *,
    width: float,
    opacity: float = 1.0,
) -> Any:
    """One trace for several trials."""
    histories = [(trial.trial, curves.histories[trial.trial]) for trial in trials]
    return lines_trace(
        ((trial, [each.step for each in points], [each.value for each in points]) for trial, points in histories),
        name,
        colour,
        width,
        "trial %{customdata}, step %{x}: <b>%{y:.5g}</b>",
        scatter,
        mode="markers" if all(len(points) == 1 for _, points in histories) else "lines",
        legendgroup=name,
        opacity=opacity,
        marker={"color": colour},
    )


def _mark_ends(
    figure: go.Figure, curves: LearningCurves, trials: Sequence[TrialRecord], name: str, colour: str
) -> None:
    """Mark where trials of one state ended, if they ended early."""
    mark = END_MARKS.get(trials[0].state)
    if mark is None:
        return
    ends = [curves.histories[trial.trial][-1] for trial in trials]
    figure.add_trace(
        go.Scatter(
            x=[point.step for point in ends],
            y=[point.value for point in ends],
            mode="markers",
            legendgroup=name,
            showlegend=False,
            marker={
                "color": colour,
                "symbol": "x" if mark == "cross" else mark,  # Plotly's "cross" is a plus sign
                "size": 8 if len(trials) <= 60 else 5,
            },
            hoverinfo="skip",
        )
    )
