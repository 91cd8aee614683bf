"""Trouble with the service's storage: which errors tell of it, and how it is said once until it is over."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from sweeps.errors import is_disk_full

RETRY_AFTER_S = 5
"""Seconds after which a client may ask again."""
_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PROTOCOL,
}
"""SQLite's codes for a file that cannot be read or written now; its other errors are mistakes of ours."""

logger = logging.getLogger(__name__)


def is_unavailable(error: BaseException) -> bool:
    """Whether an error says that the database or a disk is locked, full or away, so that the same may succeed later."""
    if isinstance(error, DBAPIError):
        if isinstance(error.orig, sqlite3.Error):
            return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _UNAVAILABLE
        return isinstance(error, OperationalError | InterfaceError)
    return isinstance(error, PoolTimeoutError) or is_disk_full(error)


def in_a_line(error: BaseException) -> str:
    """Why the storage fails, without SQL and its values."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]


class Trouble:
    """Trouble with storage, which many threads meet at once: said when it begins and when it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = None
        self._count = 0
        self._why = ""

    @property
    def why(self) -> str | None:
        """The present trouble; None if none is known."""
        with self._lock:
            return self._why if self._since is not None else None

    def met(self, error: BaseException, where: str) -> None:
        """
        Args:
            error: One that ``is_unavailable``.
            where: What could not be done.
        """
        with self._lock:
            self._count += 1
            self._why = in_a_line(error)
            if self._since is not None:
                return
            self._since = time.monotonic()
        logger.error(
            "the storage does not work (%s): %s; requests are answered 503, and this is said once until it works again",
            where,
            in_a_line(error),
        )

    def over(self) -> None:
        """Something was written."""
        with self._lock:
            since, count, self._since, self._count = self._since, self._count, None, 0
        if since is not None:
            logger.warning("the storage works again, after %.0f s and %d failures", time.monotonic() - since, count)


trouble = Trouble()
"""This process's."""
