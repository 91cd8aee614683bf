"""What the nights of a schedule have brought, as an SVG that the page holds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from sweeps.service.promotion.night import Night
from sweeps.service.web.axis import Tick, label, spread, ticks
from sweeps.tracking.values import finite

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 20, 12, 34
MOST_NIGHTS = 60
"""That are drawn: the latest."""
LABELS = 7


@dataclass(frozen=True, kw_only=True)
class NightMark:
    """One night: where its best and its champion are."""

    x: float
    best: float | None
    champion: float | None
    band: tuple[float, float] | None
    """The top of the champion's noise, and its height."""
    verdict: str
    sweep: str
    words: str


@dataclass(frozen=True, kw_only=True)
class NightsChart:
    """All that the template draws."""

    marks: Sequence[NightMark]
    best_path: str
    champion_path: str
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    metric: str
    mode: str
    noisy: bool
    """Whether any night has a band."""
    band_width: float
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    bottom: int = HEIGHT - BOTTOM


def nights_chart(nights: Sequence[Night]) -> NightsChart | None:
    """The best of each night, beside the champion on the same data; None as long as no night has a value.

    Args:
        nights: The oldest first.
    """
    shown = [night for night in nights if _values(night)][-MOST_NIGHTS:]
    if not shown:
        return None
    values = [value for night in shown for value in (*_values(night), *_band(night))]
    low, high = spread(min(values), max(values))

    def across(index: int) -> float:
        return round(LEFT + (index + 0.5) / len(shown) * (WIDTH - RIGHT - LEFT), 1)

    def up(value: float) -> float:
        return round(HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - BOTTOM - TOP), 1)

    marks = []
    for index, night in enumerate(shown):
        best, champion, band = finite(night.best), finite(night.champion), _band(night)
        tops = sorted(up(each) for each in band)
        marks.append(
            NightMark(
                x=across(index),
                best=None if best is None else up(best),
                champion=None if champion is None else up(champion),
                band=(tops[0], round(tops[1] - tops[0], 1)) if tops else None,
                verdict=night.verdict,
                sweep=night.sweep,
                words=_words(night),
            )
        )
    every = -(-len(shown) // LABELS)
    days = [(across(index), night) for index, night in enumerate(shown) if (len(shown) - 1 - index) % every == 0]
    return NightsChart(
        marks=marks,
        best_path=_path([(mark.x, mark.best) for mark in marks]),
        champion_path=_path([(mark.x, mark.champion) for mark in marks]),
        x_ticks=[Tick(at=x, text=_when(night, shown)) for x, night in days],
        y_ticks=[Tick(at=up(at), text=label(at)) for at in ticks(low, high, 6)],
        metric=shown[-1].metric,
        mode=shown[-1].mode,
        noisy=any(mark.band for mark in marks),
        band_width=round(min(40.0, 0.7 * (WIDTH - RIGHT - LEFT) / len(shown)), 1),
    )


def _values(night: Night) -> list[float]:
    return [value for value in (finite(night.best), finite(night.champion)) if value is not None]


def _band(night: Night) -> tuple[float, ...]:
    """From a standard deviation below the champion to one above."""
    champion, noise = finite(night.champion), finite(night.noise)
    return () if champion is None or not noise else (champion - noise, champion + noise)


def _path(places: Sequence[tuple[float, float | None]]) -> str:
    there = [(x, y) for x, y in places if y is not None]
    return "M" + "L".join(f"{x:g},{y:g}" for x, y in there) if len(there) > 1 else ""


def _when(night: Night, nights: Sequence[Night]) -> str:
    """Its day; of nights that are less than a day apart the time."""
    close = len(nights) > 1 and (nights[-1].due - nights[0].due) / (len(nights) - 1) < 0.9 * 86400
    moment = time.gmtime(night.due)
    return time.strftime("%H:%M", moment) if close else f"{moment.tm_mday} {time.strftime('%b', moment)}"


def _words(night: Night) -> str:
    found = [f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime(night.due))}: {night.verdict}"]
    found += [f"best {night.best:.5g}"] if night.best is not None else []
    found += [f"champion {night.champion:.5g}"] if night.champion is not None else []
    found += [f"noise {night.noise:.2g}"] if night.noise is not None else []
    return ", ".join(found)
