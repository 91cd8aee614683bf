"""Learning curves as an SVG that the page holds: a tenth of the size of a plotly figure, and there without a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sweeps.report.figures.style import robust_range
from sweeps.service.web.axis import Tick, label, spread, ticks
from sweeps.tracking.metric_history import HistoryPoint
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.summary import describe

WIDTH, HEIGHT = 760, 360
"""Of the drawing, in its own units; browsers scale it."""
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 10, 34
MOST_CURVES = 60
POINTS_PER_CURVE = 60
LONGEST_WORDS = 140

Mark = Literal["cross", "square", "dot", ""]
MARKS: Mapping[str, Mark] = {"pruned": "cross", "stopped": "cross", "failed": "square", "running": "dot"}


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One trial's line."""

    trial: str
    state: str
    best: bool
    path: str
    """The ``d`` of an SVG path."""
    mark: Mark
    """How its end is marked."""
    x: float
    y: float
    """Of its end."""
    words: str
    """Shown beside the pointer."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """All that the template draws; the best trial comes last, above the others."""

    curves: Sequence[Curve]
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    metric: str
    outside: int
    """Points that lie beyond the axis."""
    of: int
    """Trials that the sweep has."""
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM

    @property
    def states(self) -> list[str]:
        """Of the curves, for a legend."""
        return sorted({curve.state for curve in self.curves if not curve.best})

    @property
    def summary(self) -> str:
        """For who cannot see it."""
        best = next((curve.words for curve in self.curves if curve.best), "no trial has a value yet")
        return f"{self.metric} against steps of {len(self.curves)} of {self.of} trials; the best: {best}"


def chart(record: SweepRecord, histories: Mapping[str, Sequence[HistoryPoint]]) -> Chart | None:
    """The curves of the first objective; None as long as nothing was reported.

    Args:
        record: The sweep.
        histories: Points by trial, in the order of their steps.
    """
    points = [point for history in histories.values() for point in history]
    if not points:
        return None
    values = [point.value for point in points]
    low, high = robust_range(values, record.mode) or (min(values), max(values))
    low, high = spread(low, high)
    last = max(point.step for point in points) or 1

    def place(point: HistoryPoint) -> tuple[float, float]:
        share = (min(max(point.value, low), high) - low) / (high - low)
        across = LEFT + point.step / last * (WIDTH - RIGHT - LEFT)
        return round(across, 1), round(HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP), 1)

    best = record.best.trial if record.best is not None else None
    trials = sorted((each for each in record.trials if histories.get(each.trial)), key=lambda each: each.trial == best)
    return Chart(
        curves=[
            _curve(trial, [place(p) for p in histories[trial.trial]], best=trial.trial == best) for trial in trials
        ],
        x_ticks=[
            Tick(at=place(HistoryPoint(int(at), low))[0], text=label(at)) for at in ticks(0, last, 7) if at == int(at)
        ],
        y_ticks=[Tick(at=place(HistoryPoint(0, at))[1], text=label(at)) for at in ticks(low, high, 6)],
        metric=record.metric,
        outside=sum(not low <= value <= high for value in values),
        of=len(record.trials),
    )


def _curve(trial: TrialRecord, places: Sequence[tuple[float, float]], *, best: bool) -> Curve:
    value = "" if trial.value is None else f", best {trial.value:.5g}"
    words = f"trial {trial.trial}, {trial.state}{value}: {describe(trial.params)}"
    return Curve(
        trial=trial.trial,
        state=trial.state,
        best=best,
        path="M" + "L".join(f"{x:g},{y:g}" for x, y in places),
        mark=MARKS.get(trial.state) or ("dot" if len(places) == 1 else ""),
        x=places[-1][0],
        y=places[-1][1],
        words=words if len(words) <= LONGEST_WORDS else f"{words[: LONGEST_WORDS - 1]}…",
    )
