"""Tells drivers to stop sweeps and trials, on threads of its own: a silent driver keeps nobody waiting."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from sweeps.driver.stop import check_can_stop, request_stop
from sweeps.errors import SweepsError, UserError
from sweeps.tracking.record import SweepRecord

AT_ONCE = 4
MOST_WAITING = 200
"""Stops that wait for a driver's answer."""

logger = logging.getLogger(__name__)


class DriverStops:
    """Stops on their way to drivers."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, "stops")
        self._lock = threading.Lock()
        self._waiting: set[tuple[str, str | None]] = set()

    def send(self, record: SweepRecord, trial: str | None) -> None:
        """Tell a sweep, or one of its trials, to end, and return at once. Once told, it is not told again meanwhile.

        Raises:
            UserError: It does not run, or too many others are being stopped.
        """
        what = (record.sweep, check_can_stop(record, trial))
        with self._lock:
            if what in self._waiting:
                return
            if len(self._waiting) >= MOST_WAITING:
                raise UserError(f"{MOST_WAITING} sweeps and trials are being stopped, and do not answer; try again")
            self._waiting.add(what)
        self._threads.submit(self._tell, record, what)

    def close(self) -> None:
        """No more are told."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _tell(self, record: SweepRecord, what: tuple[str, str | None]) -> None:
        try:
            request_stop(record, what[1])
        except SweepsError as error:
            logger.warning("%s, trial %s: %s", record.sweep, what[1], error)
        except Exception:
            logger.exception("%s, trial %s: cannot be told to stop", record.sweep, what[1])
        finally:
            with self._lock:
                self._waiting.discard(what)
