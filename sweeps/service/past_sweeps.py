"""Measured work of earlier sweeps of a config, from which the form for a new sweep estimates time and money."""

from __future__ import annotations

from functools import lru_cache

from sweeps.errors import SweepsError
from sweeps.report.earlier_sweeps import MOST, USED
from sweeps.report.expected_cost import PastSweep, past_of
from sweeps.service.auth.principal import LOCAL, Principal
from sweeps.service.record_cache import RecordCache

KEPT = 500
"""Number of sweeps whose work is kept in memory."""


class PastSweeps:
    """Reads once, for each ended sweep, what it has trained and how long that took."""

    def __init__(self, records: RecordCache) -> None:
        self._records = records
        self._past = lru_cache(KEPT)(self._read)

    def of(self, principal: Principal, conf: str) -> list[PastSweep]:
        """Work of the newest ended sweeps of a config that a principal may see; empty while the store does not
        answer."""
        found: list[PastSweep] = []
        try:
            for line in self._records.sweeps(principal).content:
                if line.summary.conf == conf and line.summary.status in USED and len(found) < MOST:
                    self._records.check_exists(principal, line.summary.sweep)  # the list may be old
                    past = self._past(line.summary.sweep, line.summary.wall_s)
                    found += [past] if past is not None else []
        except SweepsError:
            return found
        return found

    def _read(self, sweep: str, _wall_s: float) -> PastSweep | None:  # an extended sweep has run for longer
        return past_of(self._records.sweep(LOCAL, sweep))
