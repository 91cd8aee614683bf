"""Sweeps as the pages see them: read from the store once for all who look, and kept for when it is away."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, replace

from sweeps.errors import TrackingUnreachable, UnknownName
from sweeps.report.page.material import Material, fetch_curves
from sweeps.service.page.curves import MOST_CURVES, POINTS_PER_CURVE, Chart, chart
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepRecord

FRESH_S = 1.5
"""How old what is shown may be: pages look every two seconds."""
SHARE_OF_TIME = 0.2
"""Of the time in which the store is asked for one sweep, at most: one of thousands of trials takes it seconds."""
KEPT = 50
"""Sweeps that are kept for when someone looks again."""


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """A sweep at a moment."""

    record: SweepRecord
    chart: Chart | None
    taken: float
    """Unix time."""
    took_s: float
    trouble: str = ""
    """Why it is not newer."""


class Sight:
    """Reads sweeps; may be asked by many threads at once."""

    def __init__(self, uri: str) -> None:
        """
        Args:
            uri: Tracking URI of the store.
        """
        self._uri = uri
        self._lock = threading.Lock()
        self._reading: dict[str, threading.Lock] = {}
        self._seen: OrderedDict[str, Sighting] = OrderedDict()

    def sweep(self, name: str) -> Sighting:
        """A sweep as it stands, or as it was last seen if the store is away.

        Raises:
            UnknownName: There is no such sweep.
            TrackingUnreachable: The store is away, and the sweep was not seen before.
        """
        with self._lock:
            reading = self._reading.setdefault(name, threading.Lock())
        with reading:
            seen = self._seen.get(name)
            if seen is not None and time.time() - seen.taken < max(FRESH_S, seen.took_s / SHARE_OF_TIME):
                return seen
            try:
                seen = self._look(name)
            except TrackingUnreachable as error:
                if seen is None:
                    raise
                return replace(seen, trouble=str(error))
            self._keep(name, seen)
            return seen

    def _look(self, name: str) -> Sighting:
        taken, began = time.time(), time.monotonic()
        try:
            record = load_sweep(self._uri, name)
        except UnknownName:
            self._forget(name)
            raise
        curves = fetch_curves(Material(record=record), MOST_CURVES, POINTS_PER_CURVE)
        return Sighting(record=record, chart=chart(record, curves), taken=taken, took_s=time.monotonic() - began)

    def _keep(self, name: str, seen: Sighting) -> None:
        with self._lock:
            self._seen[name] = seen
            self._seen.move_to_end(name)
            oldest = next(iter(self._seen)) if len(self._seen) > KEPT else None
        if oldest is not None:
            self._forget(oldest)

    def _forget(self, name: str) -> None:
        with self._lock:
            self._seen.pop(name, None)
            self._reading.pop(name, None)
