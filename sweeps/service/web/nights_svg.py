"""Nights of a schedule on its page, as SVG with the bands and marks of the report's figure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from sweeps.report.figures.nights import MARKS, noise_band
from sweeps.service.promotion.night import Night
from sweeps.service.web.svg_axes import Axes, Tick, padded, svg_path
from sweeps.tracking.values import finite

HEIGHT = 300
MOST_NIGHTS = 60
"""Largest number of nights in the chart: the latest ones."""
LABELS = 7
MARKED = {verdict for verdicts, _, _ in MARKS.values() for verdict in verdicts}
"""Verdicts that are drawn larger."""


@dataclass(frozen=True, kw_only=True)
class NightMark:
    """Coordinates of one night."""

    x: float
    best: float | None
    champion: float | None
    band: tuple[float, float] | None
    """Top of the champion's noise band, and its height."""
    radius: float
    verdict: str
    sweep: str
    title: str
    """Text beside the pointer."""


@dataclass(frozen=True, kw_only=True)
class NightsChart:
    """Everything that the template draws."""

    axes: Axes
    marks: Sequence[NightMark]
    best_path: str
    champion_path: str
    x_ticks: Sequence[Tick]
    metric: str
    mode: str
    noisy: bool
    """Whether any night has a band."""
    band_width: float


def nights_chart(nights: Sequence[Night]) -> NightsChart | None:
    """Chart of each night's best value beside the champion's on the same data; None if no night has a value.

    Args:
        nights: The nights, the oldest first.
    """
    shown = [night for night in nights if _values(night)][-MOST_NIGHTS:]
    if not shown:
        return None
    values = [value for night in shown for value in (*_values(night), *(noise_band(night.champion, night.noise) or ()))]
    axes = Axes(x_range=(-0.5, len(shown) - 0.5), y_range=padded(min(values), max(values)), height=HEIGHT)
    marks = [_mark(axes, index, night) for index, night in enumerate(shown)]
    every = -(-len(shown) // LABELS)
    labelled = [index for index in range(len(shown)) if (len(shown) - 1 - index) % every == 0]
    return NightsChart(
        axes=axes,
        marks=marks,
        best_path=_path([(mark.x, mark.best) for mark in marks]),
        champion_path=_path([(mark.x, mark.champion) for mark in marks]),
        x_ticks=[Tick(at=axes.x(index), text=_day(shown[index], shown)) for index in labelled],
        metric=shown[-1].metric,
        mode=shown[-1].mode,
        noisy=any(mark.band for mark in marks),
        band_width=round(min(40.0, 0.7 * (axes.right - axes.left) / len(shown)), 1),
    )


def _mark(axes: Axes, index: int, night: Night) -> NightMark:
    best, champion = finite(night.best), finite(night.champion)
    band = noise_band(night.champion, night.noise)
    bottom, top = (axes.y(each) for each in band or (0.0, 0.0))
    return NightMark(
        x=axes.x(index),
        best=None if best is None else axes.y(best),
        champion=None if champion is None else axes.y(champion),
        band=None if band is None or not night.noise else (top, round(bottom - top, 1)),
        radius=6.5 if night.verdict in MARKED else 4,
        verdict=night.verdict,
        sweep=night.sweep,
        title=_title(night),
    )


def _values(night: Night) -> list[float]:
    return [value for value in (finite(night.best), finite(night.champion)) if value is not None]


def _path(points: Sequence[tuple[float, float | None]]) -> str:
    known = [(x, y) for x, y in points if y is not None]
    return svg_path(known) if len(known) > 1 else ""


def _day(night: Night, nights: Sequence[Night]) -> str:
    """Date of a night; its time if the nights are less than a day apart."""
    close = len(nights) > 1 and (nights[-1].due - nights[0].due) / (len(nights) - 1) < 0.9 * 86400
    moment = time.gmtime(night.due)
    return time.strftime("%H:%M", moment) if close else f"{moment.tm_mday} {time.strftime('%b', moment)}"


def _title(night: Night) -> str:
    found = [f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime(night.due))}: {night.verdict}"]
    found += [f"best {night.best:.5g}"] if night.best is not None else []
    found += [f"champion {night.champion:.5g}"] if night.champion is not None else []
    found += [f"noise {night.noise:.2g}"] if night.noise is not None else []
    return ", ".join(found)
