"""Measured work of earlier sweeps of a config, from which the form for a new sweep estimates time and money."""

from __future__ import annotations

from functools import lru_cache

from sweeps.errors import SweepsError
from sweeps.report.expected_cost import PastSweep, past_of, past_sweeps
from sweeps.service.auth.principal import LOCAL, Principal
from sweeps.service.record_cache import RecordCache
from sweeps.tracking.record import SweepSummary

KEPT = 500
"""Number of sweeps whose work is kept in memory."""


class PastSweeps:
    """Reads what ended sweeps have trained and how long it took, each sweep once."""

    def __init__(self, records: RecordCache) -> None:
        self._records = records
        self._past = lru_cache(KEPT)(self._read)

    def of(self, principal: Principal, conf: str) -> list[PastSweep]:
        """Work of the newest ended sweeps of a config that a principal may see; none while the store does not
        answer."""

        def read(summary: SweepSummary) -> PastSweep | None:
            self._records.check_exists(principal, summary.sweep)  # the list may be old
            return self._past(summary.sweep, summary.wall_s)

        try:
            lines = self._records.sweeps(principal).content
            return past_sweeps((line.summary for line in lines), conf, read)
        except SweepsError:
            return []

    def _read(self, sweep: str, _wall_s: float) -> PastSweep | None:  # an extended sweep has run for longer
        return past_of(self._records.sweep(LOCAL, sweep))
