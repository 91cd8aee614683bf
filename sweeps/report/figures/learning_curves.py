"""Learning curves of a sweep: the first objective against steps, of all trials or a selection of them.

``LearningCurves`` is the figure's data, which the service's pages draw as SVG; ``learning_curves`` is the section of
the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import plotly.graph_objects as go

from sweeps.report.figures.section import Image, Section, SectionFigure, style_figure
from sweeps.report.figures.style import (
    BEST_COLOUR,
    END_MARKS,
    STATE_COLOURS,
    WEBGL_FROM,
    count_outside,
    robust_range,
)
from sweeps.report.report_data import ReportData
from sweeps.tracking.metric_history import HistoryPoint
from sweeps.tracking.record import SweepRecord, TrialRecord


@dataclass(frozen=True)
class LearningCurves:
    """Data of the figure."""

    record: SweepRecord
    histories: Mapping[str, Sequence[HistoryPoint]]
    """Reported points by trial, in the order of their steps."""

    @cached_property
    def best(self) -> str | None:
        """Id of the best trial."""
        return self.record.best.trial if self.record.best is not None else None

    @cached_property
    def trials(self) -> list[TrialRecord]:
        """Trials with a curve; the best trial is the last, so that it is drawn above the others."""
        found = [trial for trial in self.record.trials if self.histories.get(trial.trial)]
        return sorted(found, key=lambda trial: trial.trial == self.best)

    @cached_property
    def values(self) -> list[float]:
        return [point.value for trial in self.trials for point in self.histories[trial.trial]]

    @cached_property
    def limits(self) -> tuple[float, float] | None:
        """Range of the value axis; None if it must show all values."""
        return robust_range(self.values, self.record.mode)

    @property
    def outside(self) -> int:
        """Number of points outside the value axis."""
        return count_outside(self.values, self.limits)

    @property
    def selection(self) -> str:
        """Description of which trials have a curve; empty if all have."""
        count, total = len(self.trials), len(self.record.trials)
        return (
            f"{count} of {total:,} trials: the best ones, and an even selection of the others" if count < total else ""
        )


def learning_curves(data: ReportData) -> Section | None:
    """Section of the report; None if nothing was reported."""
    curves = LearningCurves(data.record, data.curves)
    if not curves.trials:
        return None
    figure = _figure(curves)
    text = "A cross is where a trial was stopped early, a square where it failed."
    text += f" {curves.selection}." if curves.selection else ""
    text += " Some values lie far outside; double-click the figure to see all." if curves.outside else ""
    figures = [SectionFigure(figure=figure, height=460)]
    image = Image(name="learning_curves", figures=[figure])
    return Section(slug="curves", title="Learning curves", text=text, figures=figures, image=image)


def _figure(curves: LearningCurves) -> go.Figure:
    figure = go.Figure()
    scatter = go.Scattergl if len(curves.values) >= WEBGL_FROM else go.Scatter
    for state, colour in STATE_COLOURS.items():
        trials = [trial for trial in curves.trials if trial.state == state and trial.trial != curves.best]
        if trials:
            _add_curves(figure, curves, trials, scatter, state, colour)
    if curves.trials[-1].trial == curves.best:
        _add_curves(figure, curves, curves.trials[-1:], go.Scatter, f"best: {curves.best}", BEST_COLOUR)
    style_figure(figure, hovermode="closest")
    figure.update_xaxes(title="steps")
    return figure.update_yaxes(title=curves.record.metric, range=curves.limits)


def _add_curves(
    figure: go.Figure, curves: LearningCurves, trials: Sequence[TrialRecord], scatter: type, name: str, colour: str
) -> None:
    """Add one trace for all trials of a state, which keeps the legend short and the page fast."""
    steps: list[float | None] = []
    values: list[float | None] = []
    texts: list[str | None] = []
    for trial in trials:
        points = curves.histories[trial.trial]
        steps += [*(point.step for point in points), None]
        values += [*(point.value for point in points), None]
        texts += [*[trial.trial] * len(points), None]
    is_best = colour == BEST_COLOUR
    ends = [curves.histories[trial.trial][-1] for trial in trials]
    figure.add_trace(
        scatter(
            x=steps,
            y=values,
            text=texts,
            mode="markers" if all(len(curves.histories[trial.trial]) == 1 for trial in trials) else "lines",
            name=name,
            legendgroup=name,
            opacity=1.0 if is_best or len(trials) <= 20 else 0.55 if len(trials) <= 60 else 0.35,
            line={"color": colour, "width": 3 if is_best else 1.5},
            marker={"color": colour},
            hovertemplate="trial %{text}, step %{x}: <b>%{y:.5g}</b><extra></extra>",
        )
    )
    mark = END_MARKS.get(trials[0].state)
    if mark is not None:
        symbol = "x" if mark == "cross" else mark  # Plotly's "cross" is a plus sign
        figure.add_trace(
            go.Scatter(
                x=[point.step for point in ends],
                y=[point.value for point in ends],
                mode="markers",
                legendgroup=name,
                showlegend=False,
                marker={"color": colour, "symbol": symbol, "size": 8 if len(trials) <= 60 else 5},
                hoverinfo="skip",
            )
        )
