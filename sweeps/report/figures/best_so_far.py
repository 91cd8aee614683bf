"""Figure of every trial's value and the best value so far, against trials and against time."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from sweeps.report.figures.section import Image, Section, SectionFigure, scatter_for, style_figure, trial_hover
from sweeps.report.figures.style import BEST_COLOUR, STATE_COLOURS, count_outside, robust_range, time_unit
from sweeps.report.report_data import ReportData, best_values
from sweeps.texts.wording import counted
from sweeps.tracking.record import TrialRecord, ended_spans


def seconds_in(data: ReportData, trial: TrialRecord) -> float:
    """Seconds from the sweep's start to a trial's end (to the driver's last update, if it is running), excluding the
    pauses between drivers."""
    at = ended_spans(data.record, trial)[-1][1] if trial.spans else trial.ended or trial.started
    return data.record.elapsed(at or data.record.started)


def best_so_far(data: ReportData) -> Section | None:
    """Section with the figures of each objective; None if no trial has a value."""
    if not data.valued:
        return None
    figures = []
    for index, metric in enumerate(data.record.metrics):
        of = f"{metric}, " if len(data.record.metrics) > 1 else ""
        figures.append(SectionFigure(figure=_against_trials(data, index), label=f"{of}by trial"))
        figures.append(SectionFigure(figure=_against_time(data, index), label=f"{of}by time"))
    text = "Each point is a trial's best value; the line is the best of all trials until then."
    if any(each.figure.layout.meta for each in figures):
        text += " Some trials lie far outside; double-click a figure to see all."
    if len(data.valued) < len(data.record.trials):
        without = len(data.record.trials) - len(data.valued)
        text += f" {counted(without, 'trial')} {'has' if without == 1 else 'have'} no value."
    image = Image(name="best_so_far", figures=[figures[1].figure])
    return Section(slug="best", title="Best so far", text=text, figures=figures, image=image)


def _against_trials(data: ReportData, objective: int) -> go.Figure:
    numbers = {trial.trial: number for number, trial in enumerate(data.record.trials, start=1)}
    figure = _figure(data, objective, data.valued, [numbers[trial.trial] for trial in data.valued])
    return figure.update_xaxes(title="trials", dtick=1 if len(data.record.trials) <= 15 else None)


def _against_time(data: ReportData, objective: int) -> go.Figure:
    trials = sorted(data.valued, key=lambda trial: seconds_in(data, trial))
    seconds = [seconds_in(data, trial) for trial in trials]
    unit, name = time_unit(max(seconds))
    figure = _figure(data, objective, trials, [each / unit for each in seconds])
    return figure.update_xaxes(title=f"{name} since the start")


def _figure(data: ReportData, objective: int, trials: Sequence[TrialRecord], positions: Sequence[float]) -> go.Figure:
    figure = go.Figure()
    scatter = scatter_for(len(trials))
    for state, colour in STATE_COLOURS.items():
        chosen = [(x, trial) for x, trial in zip(positions, trials, strict=True) if trial.state == state]
        if chosen:
            figure.add_trace(
                scatter(
                    x=[x for x, _ in chosen],
                    y=[trial.all_values()[objective] for _, trial in chosen],
                    text=[trial_hover(trial, len(trials)) for _, trial in chosen],
                    customdata=[trial.trial for _, trial in chosen],
                    mode="markers",
                    name=state,
                    marker={"color": colour, "size": 8 if len(trials) < 200 else 5, "opacity": 0.75},
                    hovertemplate="%{text}<br><b>%{y:.5g}</b><extra></extra>",
                )
            )
    line = {"color": BEST_COLOUR, "width": 2, "shape": "hv"}
    mode = data.record.modes[objective]
    best = best_values(trials, mode, objective)
    figure.add_trace(go.Scatter(x=positions, y=best, mode="lines", name="best so far", line=line, hoverinfo="skip"))
    values = [trial.all_values()[objective] for trial in trials]
    limits = robust_range(values, mode)
    style_figure(figure, meta=count_outside(values, limits), hovermode="closest")
    return figure.update_yaxes(title=data.record.metrics[objective], range=limits)
