"""Stop requests to drivers. They are sent on separate threads, since a driver may not answer."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from sweeps.driver.stop import check_can_stop, request_stop
from sweeps.errors import SweepsError, UserError
from sweeps.tracking.record import SweepRecord

THREADS = 4
MAX_PENDING = 200
"""Maximum number of stop requests without an answer."""

logger = logging.getLogger(__name__)


class DriverStops:
    """Pending stop requests to drivers."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "stops")
        self._lock = threading.Lock()
        self._pending: dict[tuple[str, str | None], Future[None]] = {}

    def send(self, record: SweepRecord, trial: str | None) -> None:
        """Ask a sweep's driver to stop the sweep or one of its trials, and return immediately. A pending request is not
        sent again.

        Raises:
            UserError: The sweep or trial is not running, or too many requests are pending.
        """
        target = (record.sweep, check_can_stop(record, trial))
        with self._lock:
            self._pending = {each: sending for each, sending in self._pending.items() if not sending.done()}
            if target in self._pending:
                return
            if len(self._pending) >= MAX_PENDING:
                raise UserError(f"{MAX_PENDING} stop requests are waiting for their drivers; try again later")
            self._pending[target] = self._threads.submit(_tell, record, target[1])

    def close(self) -> None:
        """Drop the requests that have not been sent."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _tell(record: SweepRecord, trial: str | None) -> None:
    try:
        request_stop(record, trial)
    except SweepsError as error:
        logger.warning("%s, trial %s: %s", record.sweep, trial, error)
    except Exception:
        logger.exception("%s, trial %s: the stop request failed", record.sweep, trial)
