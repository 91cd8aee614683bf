"""The nights of a schedule: tonight's best beside the champion on the same data, and what each night took."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from sweeps.constants import NIGHTS_ARTIFACT
from sweeps.report.page.canvas import plain
from sweeps.report.page.drawing import Drawing, Section, polish
from sweeps.report.page.style import BEST_COLOUR, STATE_COLOURS, time_unit
from sweeps.tracking.artifacts import read_text
from sweeps.tracking.record import SweepRecord

BEST, CHAMPION, NOISE = STATE_COLOURS["finished"], STATE_COLOURS["pruned"], "rgba(217, 137, 43, 0.18)"
PROMOTED, REGRESSION = STATE_COLOURS["running"], STATE_COLOURS["failed"]
MARKS = {"promotion": (("first", "promoted"), PROMOTED, "star"), "regression": (("regression",), REGRESSION, "x")}
"""Name of a mark -> verdicts that have it, its colour and its symbol."""
SYMBOLS = {"star": "*", "x": "X"}
"""Plotly's, as matplotlib has them."""


@dataclass(frozen=True)
class NightsRecord:
    """What the figures are drawn from."""

    schedule: str
    metric: str
    nights: Sequence[dict[str, Any]]
    """As the service gives them, the oldest first: ``due`` (Unix time), ``sweep``, ``best``, ``champion``, ``noise``,
    ``verdict``, ``reason``, ``version``, ``wall_s``, ``cost``."""

    @property
    def days(self) -> list[str]:
        """When each was due, in UTC."""
        return [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(night["due"])) for night in self.nights]

    def as_text(self) -> str:
        """The artifact's contents."""
        document = {"schedule": self.schedule, "metric": self.metric, "nights": [*self.nights]}
        return json.dumps(document, indent=1)


def recorded_nights(record: SweepRecord) -> NightsRecord | None:
    """The nights of its schedule, as they were when this sweep was judged; None of a sweep that is no night."""
    text = read_text(record.mlflow.tracking_uri, record.mlflow.run_id, NIGHTS_ARTIFACT)
    return None if text is None else NightsRecord(**json.loads(text))


def nights_section(nights: NightsRecord) -> Section:
    return Section(
        slug="nights",
        title="Nights",
        text=(
            f"What the nights of {nights.schedule} have brought: each night's best value, and the champion's on the "
            "same data, with a band as wide as equal trainings differ by (one standard deviation). A star is a new "
            "champion, a cross a night that was worse than those before by more than that."
        ),
        drawings=[
            Drawing(figure=nights_figure(nights), label="values"),
            Drawing(figure=_effort(nights), label="time and cost"),
        ],
    )


def nights_figure(nights: NightsRecord) -> go.Figure:
    figure = go.Figure()
    days, known = nights.days, nights.nights
    for sign, fill in ((1, None), (-1, "tonexty")):
        figure.add_trace(
            go.Scatter(
                x=days,
                y=_band(known, sign),
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
    polish(figure, hovermode="closest")
    figure.update_layout(legend_traceorder="normal")
    figure.update_xaxes(title="night (UTC)")
    figure.update_yaxes(title=nights.metric)
    return figure


def write_picture(nights: NightsRecord, path: Path) -> Path:
    """The same as a PNG file."""
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    plain(axes)
    axes.set(xlabel="night", ylabel=nights.metric)
    axes.set_title(nights.schedule, loc="left", fontsize=11, fontweight="bold")
    _draw(axes, nights.nights)
    figure.savefig(path)
    return path


def _draw(axes: Axes, known: Sequence[dict[str, Any]]) -> None:
    places = list(range(len(known)))
    high, low = (_plain(_band(known, sign)) for sign in (1, -1))
    axes.fill_between(places, low, high, color=CHAMPION, alpha=0.18, linewidth=0, label="noise")
    champions, bests = (_plain([night[name] for night in known]) for name in ("champion", "best"))
    axes.plot(places, champions, color=CHAMPION, linestyle=":", marker="o", markersize=4, label="champion")
    axes.plot(places, bests, color=BEST, linewidth=2, marker="o", markersize=5, label="tonight's best")
    for name, (verdicts, colour, symbol) in MARKS.items():
        chosen = [place for place in places if known[place]["verdict"] in verdicts]
        if chosen:
            values = [bests[place] for place in chosen]
            axes.scatter(chosen, values, color=colour, marker=SYMBOLS[symbol], s=130, zorder=3, label=name)
    shown = places[:: max(1, len(places) // 8)]
    axes.set_xticks(shown, [_day(known[place]["due"], known) for place in shown])
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=5, frameon=False, fontsize=9)


def _effort(nights: NightsRecord) -> go.Figure:
    figure = go.Figure()
    seconds = [night["wall_s"] or 0.0 for night in nights.nights]
    unit, name = time_unit(max(seconds, default=0.0))
    figure.add_trace(go.Bar(x=nights.days, y=[each / unit for each in seconds], name="time", marker={"color": BEST}))
    costs = [night["cost"] or 0.0 for night in nights.nights]
    polish(figure)
    if any(costs):
        line = {"color": BEST_COLOUR, "width": 2}
        figure.add_trace(go.Scatter(x=nights.days, y=costs, name="cost", yaxis="y2", line=line))
        figure.update_layout(yaxis2={"title": "cost", "overlaying": "y", "side": "right", "rangemode": "tozero"})
    figure.update_xaxes(title="night (UTC)")
    figure.update_yaxes(title=name, selector={"overlaying": None})
    return figure


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


def _band(nights: Sequence[dict[str, Any]], sign: int) -> list[float | None]:
    """The champion's value, and the noise above or below it."""
    return [
        None if night["champion"] is None or night["noise"] is None else night["champion"] + sign * night["noise"]
        for night in nights
    ]


def _plain(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _day(due: float, nights: Sequence[dict[str, Any]]) -> str:
    often = len(nights) > 1 and nights[-1]["due"] - nights[0]["due"] < 86400 * len(nights) / 2
    return time.strftime("%H:%M" if often else "%d %b", time.gmtime(due))


def _hover(night: dict[str, Any]) -> str:
    best = "no value" if night["best"] is None else f"<b>{night['best']:.5g}</b>"
    words = (night["reason"] or "").replace("&", "&amp;").replace("<", "&lt;")  # plotly takes some HTML
    return f"{night['sweep']}<br>{best}, {night['verdict']}<br>{words}"
