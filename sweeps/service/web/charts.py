"""The learning curves of the sweeps that are looked at, drawn once for all who look."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from sweeps.errors import TrackingUnreachable
from sweeps.report.report_data import ReportData, fetch_curves
from sweeps.service.web.curves import MOST_CURVES, POINTS_PER_CURVE, Chart, chart
from sweeps.tracking.record import SweepRecord

KEPT = 100
"""Sweeps of which there is a drawing."""


@dataclass
class _Drawn:
    """Of one sweep."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    record: SweepRecord | None = None
    """Of which it is drawn."""
    chart: Chart | None = None


class Charts:
    """May be asked by many threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._drawn: OrderedDict[str, _Drawn] = OrderedDict()

    def of(self, record: SweepRecord) -> Chart | None:
        """The chart of a sweep as it was read: the same record is drawn once. While the store is away it is the last
        one that was drawn."""
        with self._lock:
            drawn = self._drawn.setdefault(record.sweep, _Drawn())
            self._drawn.move_to_end(record.sweep)
            if len(self._drawn) > KEPT:
                self._drawn.popitem(last=False)
        with drawn.lock:
            if drawn.record is not record:
                try:
                    histories = fetch_curves(ReportData(record=record), MOST_CURVES, POINTS_PER_CURVE)
                except TrackingUnreachable:
                    return drawn.chart
                drawn.record, drawn.chart = record, chart(record, histories)
            return drawn.chart
