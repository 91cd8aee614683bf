"""Several objectives: the Pareto front."""

from __future__ import annotations

import itertools

import plotly.graph_objects as go

from sweeps.report.page.drawing import Drawing, Section, polish
from sweeps.report.page.learning_curves import WEBGL_FROM, hover
from sweeps.report.page.report_data import Material, values_of
from sweeps.report.page.style import BEST_COLOUR, STATE_COLOURS, robust_range


def pareto_front(material: Material) -> Section | None:
    """Every pair of objectives, with the trials of the front marked; nothing of a single objective."""
    record = material.record
    if len(record.metrics) < 2 or not material.valued:
        return None
    drawings = []
    for x, y in itertools.combinations(range(len(record.metrics)), 2):
        figure = _plane(material, x, y)
        drawings.append(Drawing(figure=figure, label=f"{record.metrics[x]} and {record.metrics[y]}", height=480))
    goals = " and ".join(f"{metric} ({mode})" for metric, mode in zip(record.metrics, record.modes, strict=True))
    text = (
        f"The objectives are {goals}. The front has {len(record.front)} trials: no other trial is as good in all "
        "objectives and better in one."
    )
    return Section(slug="front", title="Pareto front", text=text, drawings=drawings)


def _plane(material: Material, x: int, y: int) -> go.Figure:
    record = material.record
    front = {trial.trial for trial in record.front}
    figure = go.Figure()
    scatter = go.Scattergl if len(material.valued) >= WEBGL_FROM else go.Scatter
    groups = [
        (state, [trial for trial in material.valued if trial.state == state and trial.trial not in front], colour)
        for state, colour in STATE_COLOURS.items()
    ]
    for name, trials, colour in [*groups, ("Pareto front", record.front, BEST_COLOUR)]:
        if not trials:
            continue
        is_front = colour == BEST_COLOUR
        both = sorted(
            (values_of(trial)[x], values_of(trial)[y], hover(trial, len(material.valued))) for trial in trials
        )
        joined = is_front and len(record.metrics) == 2
        figure.add_trace(
            scatter(
                x=[each[0] for each in both],
                y=[each[1] for each in both],
                text=[each[2] for each in both],
                mode="lines+markers" if joined else "markers",
                name=name,
                line={"color": colour, "width": 1.5, "dash": "dot"},
                marker={"color": colour, "size": 9 if is_front else 6, "opacity": 1.0 if is_front else 0.5},
                hovertemplate="%{text}<br><b>%{x:.5g}, %{y:.5g}</b><extra></extra>",
            )
        )
    polish(figure, hovermode="closest")
    figure.update_xaxes(title=record.metrics[x], range=_range(material, x))
    figure.update_yaxes(title=record.metrics[y], range=_range(material, y))
    return figure


def _range(material: Material, index: int) -> tuple[float, float] | None:
    return robust_range([values_of(trial)[index] for trial in material.valued], material.record.modes[index])
