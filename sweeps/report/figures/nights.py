"""Nights of a schedule: each night's best value beside the champion on the same data, and each night's time and cost.

``NightsRecord`` is the figures' data; ``nights_section`` is the section of the report.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from sweeps.constants import NIGHTS_ARTIFACT
from sweeps.report.figures.section import Image, Section, SectionFigure, escape_hover, style_figure
from sweeps.report.figures.style import BEST_COLOUR, STATE_COLOURS, time_unit
from sweeps.tracking.artifacts import read_text
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.values import finite

BEST, CHAMPION, NOISE = STATE_COLOURS["finished"], STATE_COLOURS["pruned"], "rgba(217, 137, 43, 0.18)"
DAY_S = 86400.0
MARKS = {
    "promotion": (("first", "promoted"), STATE_COLOURS["running"], "star"),
    "regression": (("regression",), STATE_COLOURS["failed"], "x"),
}
"""Verdicts that get a mark, and its colour and symbol, by the mark's name."""


@dataclass(frozen=True)
class NightsRecord:
    """Nights of a schedule: the data of the figures."""

    schedule: str
    metric: str
    nights: Sequence[dict[str, Any]]
    """Documents of the service, the oldest first: ``due`` (Unix time), ``sweep``, ``best``, ``champion``, ``noise``,
    ``verdict``, ``reason``, ``version``, ``wall_s``, ``cost``."""

    @property
    def days(self) -> list[str]:
        """Time in UTC at which each night was due."""
        return [_utc(night["due"]) for night in self.nights]

    @property
    def axis(self) -> tuple[str, str] | None:
        """Range of the time axis for a single night: from a day before it to a day after. None for several nights."""
        times = {night["due"] for night in self.nights}
        return (_utc(min(times) - DAY_S), _utc(min(times) + DAY_S)) if len(times) == 1 else None

    def as_text(self) -> str:
        """Contents of the MLflow artifact, as JSON."""
        document = {"schedule": self.schedule, "metric": self.metric, "nights": [*self.nights]}
        return json.dumps(document, indent=1)


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def recorded_nights(record: SweepRecord) -> NightsRecord | None:
    """Nights of a sweep's schedule up to this sweep; None if the sweep is not a night."""
    text = read_text(record.mlflow.tracking_uri, record.mlflow.run_id, NIGHTS_ARTIFACT)
    return None if text is None else NightsRecord(**json.loads(text))


def noise_band(champion: float | None, noise: float | None) -> tuple[float, float] | None:
    """One standard deviation of the noise below and above the champion's value; None if either is unknown."""
    champion, noise = finite(champion), finite(noise)
    return None if champion is None or noise is None else (champion - noise, champion + noise)


def nights_section(nights: NightsRecord) -> Section:
    values = nights_figure(nights)
    return Section(
        slug="nights",
        title="Nights",
        text=(
            f"The nights of {nights.schedule}: each night's best value, and the champion's on the same data, with a "
            "band of one standard deviation between equal trainings. A star is a new champion, a cross a night that "
            "was worse than the nights before by more than that."
        ),
        figures=[
            SectionFigure(figure=values, label="values"),
            SectionFigure(figure=_effort(nights), label="time and cost"),
        ],
        image=Image(name="nights", figures=[values]),
    )


def nights_figure(nights: NightsRecord) -> go.Figure:
    figure = go.Figure()
    days, known = nights.days, nights.nights
    bands = [noise_band(night["champion"], night["noise"]) for night in known]
    for index, fill in ((1, None), (0, "tonexty")):
        figure.add_trace(
            go.Scatter(
                x=days,
                y=[None if band is None else band[index] for band in bands],
                fill=fill,
                fillcolor=NOISE,
                line={"width": 0},
                mode="lines",
                name="noise",
                showlegend=fill is not None,
                hoverinfo="skip",
            )
        )
    figure.add_trace(_line(days, [night["champion"] for night in known], "champion", CHAMPION, "dot"))
    best = _line(days, [night["best"] for night in known], "tonight's best", BEST, "solid")
    best.update(text=[_hover(night) for night in known], hovertemplate="%{text}<extra></extra>")
    best.update(customdata=[night["sweep"] for night in known])
    figure.add_trace(best)
    for name, (verdicts, colour, symbol) in MARKS.items():
        chosen = [(day, night) for day, night in zip(days, known, strict=True) if night["verdict"] in verdicts]
        if chosen:
            figure.add_trace(
                go.Scatter(
                    x=[day for day, _ in chosen],
                    y=[night["best"] for _, night in chosen],
                    mode="markers",
                    name=name,
                    marker={"color": colour, "symbol": symbol, "size": 15, "line": {"width": 1, "color": "white"}},
                    hoverinfo="skip",
                )
            )
    style_figure(figure, hovermode="closest")
    figure.update_layout(legend_traceorder="normal")
    figure.update_xaxes(title="night (UTC)", type="date", range=nights.axis)
    return figure.update_yaxes(title=nights.metric)


def _effort(nights: NightsRecord) -> go.Figure:
    figure = go.Figure()
    seconds = [night["wall_s"] or 0.0 for night in nights.nights]
    unit, name = time_unit(max(seconds, default=0.0))
    bars = go.Bar(x=nights.days, y=[each / unit for each in seconds], name="time", marker={"color": BEST})
    if nights.axis is not None:  # otherwise a single bar is a millisecond wide
        bars.width = DAY_S * 1000 / 4
    figure.add_trace(bars)
    costs = [night["cost"] or 0.0 for night in nights.nights]
    style_figure(figure)
    if any(costs):
        line = {"color": BEST_COLOUR, "width": 2}
        figure.add_trace(go.Scatter(x=nights.days, y=costs, name="cost", yaxis="y2", line=line))
        of_cost = {"title": "cost", "overlaying": "y", "side": "right", "rangemode": "tozero", "automargin": True}
        figure.update_layout(yaxis2=of_cost)
    figure.update_xaxes(title="night (UTC)", type="date", range=nights.axis)
    return figure.update_yaxes(title=name, selector={"overlaying": None})


def _line(days: Sequence[str], values: Sequence[float | None], name: str, colour: str, dash: str) -> go.Scatter:
    return go.Scatter(
        x=days,
        y=values,
        name=name,
        mode="lines+markers",
        connectgaps=True,
        line={"color": colour, "width": 2, "dash": dash},
        marker={"size": 8},
        hovertemplate=f"{name} %{{y:.5g}}<extra></extra>",
    )


def _hover(night: dict[str, Any]) -> str:
    best = "no value" if night["best"] is None else f"<b>{night['best']:.5g}</b>"
    return f"{night['sweep']}<br>{best}, {night['verdict']}<br>{escape_hover(night['reason'] or '')}"
