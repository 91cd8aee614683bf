"""The store and the queue as they were last seen, for all who look."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from sweeps.errors import TrackingUnreachable
from sweeps.service import jobs
from sweeps.service.jobs import Job
from sweeps.tracking.reader import list_sweeps
from sweeps.tracking.record import SweepSummary

FRESH_S = 1.0


@dataclass(frozen=True, eq=False)
class Seen:
    """All sweeps and jobs at a moment."""

    sweeps: Sequence[SweepSummary] = ()
    jobs: Sequence[Job] = ()
    taken: float = 0.0
    """Unix time."""
    trouble: str = ""
    """Why it is not newer."""


class Looking:
    """Looks at most once a second, however many ask."""

    def __init__(self, tracking_uri: str, database: Engine) -> None:
        self._uri, self._database = tracking_uri, database
        self._lock = threading.Lock()
        self._seen = Seen()
        self._tried = 0.0

    def __call__(self) -> Seen:
        with self._lock:
            if time.monotonic() - self._tried >= FRESH_S:
                self._seen = self._look()
                self._tried = time.monotonic()
            return self._seen

    def _look(self) -> Seen:
        taken = time.time()
        try:
            with self._database.connect() as connection:
                listed = jobs.listed(connection)
            return Seen(list_sweeps(self._uri), listed, taken)
        except (TrackingUnreachable, SQLAlchemyError) as error:
            return replace(self._seen, trouble=str(error).splitlines()[0])
