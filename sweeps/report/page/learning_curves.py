"""How the search came along: the best value so far, and the learning curves."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from sweeps.report.page.drawing import Drawing, Section, polish
from sweeps.report.page.report_data import Material, can_be_best, values_of
from sweeps.report.page.style import BEST_COLOUR, STATE_COLOURS, count_outside, robust_range, time_unit
from sweeps.tracking.record import TrialRecord
from sweeps.tracking.summary import describe

WEBGL_FROM = 4000
"""Points from which a figure is drawn by the graphics card: browsers are slow with more, and allow few such figures."""
LONGEST_HOVER = 160
MOST_DESCRIBED = 500
"""Trials whose parameters are beside the pointer; of more, the page would become large, and the table has them."""


def best_so_far(material: Material) -> Section:
    """Every trial's value, and the best until then, against trials and against time."""
    drawings = []
    for index, (metric, mode) in enumerate(zip(material.record.metrics, material.record.modes, strict=True)):
        of = f"{metric}, " if len(material.record.metrics) > 1 else ""
        drawings.append(Drawing(figure=_best_against(material, index, mode, by_time=False), label=f"{of}by trial"))
        drawings.append(Drawing(figure=_best_against(material, index, mode, by_time=True), label=f"{of}by time"))
    text = "Each point is a trial's best value; the line is the best of all trials until then."
    if any(drawing.figure.layout.meta for drawing in drawings):
        text += " Some trials lie far outside; double-click a figure to see all."
    if len(material.valued) < len(material.record.trials):
        text += f" {len(material.record.trials) - len(material.valued)} trials have no value."
    return Section(slug="best", title="Best so far", text=text, drawings=drawings)


def best_line(index: int, mode: str, trials: Sequence[TrialRecord]) -> list[float | None]:
    """The best value of an objective among the first trials, for each of them; None before there is one."""
    better = min if mode == "min" else max
    line: list[float | None] = []
    best: float | None = None
    for trial in trials:
        if can_be_best(trial):
            value = values_of(trial)[index]
            best = value if best is None else better(best, value)
        line.append(best)
    return line


def seconds_in(material: Material, trial: TrialRecord) -> float:
    """When a trial ended, in seconds since the sweep began, without the pauses between its drivers; of one that runs,
    when it started."""
    at = trial.spans[-1].ended or trial.spans[-1].trained if trial.spans else trial.ended or trial.started
    return material.record.elapsed(at or material.record.started)


def _best_against(material: Material, index: int, mode: str, *, by_time: bool) -> go.Figure:
    trials = material.valued
    if by_time:
        trials = sorted(trials, key=lambda trial: seconds_in(material, trial))
        unit, name = time_unit(max((seconds_in(material, trial) for trial in trials), default=0.0))
        places = [seconds_in(material, trial) / unit for trial in trials]
        title = f"{name} since the start"
    else:
        number = {trial.trial: place for place, trial in enumerate(material.record.trials, start=1)}
        places = [number[trial.trial] for trial in trials]
        title = "trials"
    figure = go.Figure()
    scatter = go.Scattergl if len(trials) >= WEBGL_FROM else go.Scatter
    for state, colour in STATE_COLOURS.items():
        chosen = [(x, trial) for x, trial in zip(places, trials, strict=True) if trial.state == state]
        if chosen:
            figure.add_trace(
                scatter(
                    x=[x for x, _ in chosen],
                    y=[values_of(trial)[index] for _, trial in chosen],
                    text=[hover(trial, len(trials)) for _, trial in chosen],
                    mode="markers",
                    name=state,
                    marker={"color": colour, "size": 8 if len(trials) < 200 else 5, "opacity": 0.75},
                    hovertemplate="%{text}<br><b>%{y:.5g}</b><extra></extra>",
                )
            )
    line = {"color": BEST_COLOUR, "width": 2, "shape": "hv"}
    best = best_line(index, mode, trials)
    figure.add_trace(go.Scatter(x=places, y=best, mode="lines", name="best so far", line=line, hoverinfo="skip"))
    values = [values_of(trial)[index] for trial in trials]
    limits = robust_range(values, mode)
    polish(figure, meta=count_outside(values, limits), hovermode="closest")
    figure.update_xaxes(title=title, dtick=1 if not by_time and len(material.record.trials) <= 15 else None)
    figure.update_yaxes(title=material.record.metrics[index], range=limits)
    return figure


def learning_curves(material: Material) -> Section | None:
    """The first objective against steps, of all trials or a choice of them."""
    if not material.curves:
        return None
    record = material.record
    figure = go.Figure()
    best = record.best.trial if record.best is not None else None
    by_id = {trial.trial: trial for trial in record.trials}
    points = sum(map(len, material.curves.values()))
    for state, colour in STATE_COLOURS.items():
        trials = [by_id[trial] for trial in material.curves if by_id[trial].state == state and trial != best]
        if trials:
            _add_curves(figure, material, trials, state, colour, fast=points >= WEBGL_FROM)
    if best is not None and best in material.curves:
        _add_curves(figure, material, [by_id[best]], f"best: {best}", BEST_COLOUR, fast=False)
    values = [point.value for curve in material.curves.values() for point in curve]
    limits = robust_range(values, record.mode)
    polish(figure, hovermode="closest")
    figure.update_xaxes(title="steps")
    figure.update_yaxes(title=record.metric, range=limits)
    return Section(
        slug="curves",
        title="Learning curves",
        text=_curves_text(material, outside=count_outside(values, limits) > 0),
        drawings=[Drawing(figure=figure, height=460)],
    )


def _curves_text(material: Material, *, outside: bool) -> str:
    text = "A cross is where a trial was stopped early, a square where it failed."
    count, all_ = len(material.curves), len(material.record.trials)
    if count < all_:
        text += f" {count} of {all_:,} trials: the best ones, and of the others every so many-th."
    return text + (" Some values lie far outside; double-click the figure to see all." if outside else "")


def _add_curves(
    figure: go.Figure, material: Material, trials: Sequence[TrialRecord], name: str, colour: str, *, fast: bool
) -> None:
    """One trace for all trials of a state: a legend of a few lines, and a quick page."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    texts: list[str | None] = []
    for trial in trials:
        curve = material.curves[trial.trial]
        xs += [*(point.step for point in curve), None]
        ys += [*(point.value for point in curve), None]
        texts += [*[trial.trial] * len(curve), None]
    scatter = go.Scattergl if fast else go.Scatter
    is_best = colour == BEST_COLOUR
    opacity = 1.0 if is_best or len(trials) <= 20 else 0.55 if len(trials) <= 60 else 0.35
    single = all(len(material.curves[trial.trial]) == 1 for trial in trials)
    figure.add_trace(
        scatter(
            x=xs,
            y=ys,
            text=texts,
            mode="markers" if single else "lines",
            name=name,
            legendgroup=name,
            opacity=opacity,
            line={"color": colour, "width": 3 if is_best else 1.5},
            marker={"color": colour},
            hovertemplate="trial %{text}, step %{x}: <b>%{y:.5g}</b><extra></extra>",
        )
    )
    symbol = {"pruned": "x", "stopped": "x", "failed": "square"}.get(trials[0].state)
    if symbol is not None:
        ends = [material.curves[trial.trial][-1] for trial in trials]
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


def hover(trial: TrialRecord, among: int) -> str:
    """A trial in a few words, for what is shown beside the pointer; in fewer, if it is one among many."""
    name = f"trial {trial.trial}, {trial.state}, {trial.steps} steps"
    if among > MOST_DESCRIBED:
        return name
    text = describe(trial.params)
    words = text if len(text) <= LONGEST_HOVER else f"{text[: LONGEST_HOVER - 1]}…"
    words = words.replace("&", "&amp;").replace("<", "&lt;")  # plotly takes some HTML
    lines, line = [], ""
    for word in words.split(" "):
        if len(line) + len(word) > 60:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    shown = "<br>".join([*lines, line])
    return f"{name}<br>{shown}"
