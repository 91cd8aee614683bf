"""Learning curves on a sweep's page, as SVG from the data of the report's figure."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sweeps.errors import TrackingUnreachable
from sweeps.report.figures.learning_curves import LearningCurves
from sweeps.report.figures.style import END_MARKS, count_outside
from sweeps.report.formatting import shorten
from sweeps.report.report_data import ReportData, fetch_curves
from sweeps.service.web.svg_axes import Axes, Tick, padded, svg_path
from sweeps.tracking.metric_history import HistoryPoint
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.summary import describe

HEIGHT = 360
MOST_CURVES = 60
POINTS_PER_CURVE = 60
LONGEST_TITLE = 140
CACHED = 100
"""Number of sweeps whose chart is cached."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Line of one trial."""

    trial: str
    state: str
    is_best: bool
    path: str
    """``d`` of the SVG path."""
    mark: str
    """Mark at its end: ``cross``, ``square``, ``dot`` or none."""
    x: float
    y: float
    """Coordinates of its end."""
    title: str
    """Text beside the pointer."""


@dataclass(frozen=True, kw_only=True)
class CurvesChart:
    """Everything that the template draws; the best trial is the last curve, above the others."""

    axes: Axes
    curves: Sequence[Curve]
    x_ticks: Sequence[Tick]
    metric: str
    selection: str
    """Description of which trials have a curve; empty if all have."""
    outside: int
    """Number of points outside the axis."""
    summary: str
    """Text for screen readers."""

    @property
    def legend(self) -> list[tuple[str, str]]:
        """States of the curves, each with its mark."""
        states = sorted({curve.state for curve in self.curves if not curve.is_best})
        return [(state, END_MARKS.get(state, "")) for state in states]


def curves_chart(record: SweepRecord, histories: Mapping[str, Sequence[HistoryPoint]]) -> CurvesChart | None:
    """Chart of the first objective; None if nothing was reported.

    Args:
        record: The sweep.
        histories: Points by trial, in the order of their steps.
    """
    data = LearningCurves(record, histories)
    if not data.values:
        return None
    last = max(point.step for trial in data.trials for point in histories[trial.trial]) or 1
    limits = data.limits or (min(data.values), max(data.values))
    axes = Axes(x_range=(0, last), y_range=padded(*limits), height=HEIGHT)
    curves = [_curve(axes, trial, histories[trial.trial], is_best=trial.trial == data.best) for trial in data.trials]
    best = next((curve.title for curve in curves if curve.is_best), "no trial has a value yet")
    return CurvesChart(
        axes=axes,
        curves=curves,
        x_ticks=axes.integer_x_ticks,
        metric=record.metric,
        selection=data.selection,
        outside=count_outside(data.values, axes.y_range),
        summary=f"{record.metric} against steps of {len(curves)} of {len(record.trials)} trials; the best: {best}",
    )


def _curve(axes: Axes, trial: TrialRecord, points: Sequence[HistoryPoint], *, is_best: bool) -> Curve:
    places = [(axes.x(point.step), axes.y(point.value)) for point in points]
    value = "" if trial.value is None else f", best {trial.value:.5g}"
    return Curve(
        trial=trial.trial,
        state=trial.state,
        is_best=is_best,
        path=svg_path(places),
        mark=END_MARKS.get(trial.state) or ("dot" if trial.state == "running" or len(places) == 1 else ""),
        x=places[-1][0],
        y=places[-1][1],
        title=shorten(f"trial {trial.trial}, {trial.state}{value}: {describe(trial.params)}", LONGEST_TITLE),
    )


@dataclass
class _Cached:
    lock: threading.Lock = field(default_factory=threading.Lock)
    record: SweepRecord | None = None
    chart: CurvesChart | None = None


class ChartCache:
    """Thread-safe cache of the latest chart of each sweep."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cached: OrderedDict[str, _Cached] = OrderedDict()

    def chart_of(self, record: SweepRecord) -> CurvesChart | None:
        """Chart of a record, made once for each record; the last one made while the store cannot be reached."""
        with self._lock:
            cached = self._cached.setdefault(record.sweep, _Cached())
            self._cached.move_to_end(record.sweep)
            if len(self._cached) > CACHED:
                self._cached.popitem(last=False)
        with cached.lock:
            if cached.record is not record:
                try:
                    histories = fetch_curves(ReportData(record=record), MOST_CURVES, POINTS_PER_CURVE)
                except TrackingUnreachable:
                    return cached.chart
                cached.record, cached.chart = record, curves_chart(record, histories)
            return cached.chart
