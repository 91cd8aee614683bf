"""Errors of the service's storage (database or disk): which ones are temporary, and one log message per outage."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from sweeps.errors import is_storage_failure

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
"""SQLite's codes for a file that cannot be read or written now; other codes are programming errors."""
_UNAVAILABLE_STATES = {"25006", "25P03"}
"""SQLSTATEs of PostgreSQL that psycopg treats as internal errors: the server has become a standby, or has ended a
transaction that was idle for too long."""

logger = logging.getLogger(__name__)


def is_unavailable(error: BaseException) -> bool:
    """Whether the database or a disk is locked, full or unreachable, so that a retry may succeed."""
    if isinstance(error, DBAPIError):
        if isinstance(error.orig, sqlite3.Error):
            return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _UNAVAILABLE
        state = getattr(error.orig, "sqlstate", None)
        return isinstance(error, OperationalError | InterfaceError) or state in _UNAVAILABLE_STATES
    return isinstance(error, PoolTimeoutError) or is_storage_failure(error)


def first_line(error: BaseException) -> str:
    """First line of a storage error, without SQL and its values."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]


class StorageOutage:
    """State of the storage, shared by all threads: an outage is logged when it begins and when it ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = None
        self._count = 0
        self._reason = ""

    @property
    def reason(self) -> str | None:
        """Reason for the current outage; None if there is none."""
        with self._lock:
            return self._reason if self._since is not None else None

    def report(self, error: BaseException, where: str) -> None:
        """Record a failed access: an error for which ``is_unavailable`` is true, and the operation that failed, for the
        log."""
        with self._lock:
            self._count += 1
            self._reason = first_line(error)
            if self._since is not None:
                return
            self._since = time.monotonic()
        logger.error(
            "the storage does not work (%s): %s; requests are answered 503; logged once until it works again",
            where,
            first_line(error),
        )

    def clear(self) -> None:
        """Record a successful write: the outage is over."""
        with self._lock:
            since, count, self._since, self._count = self._since, self._count, None, 0
        if since is not None:
            logger.warning("the storage works again, after %.0f s and %d failures", time.monotonic() - since, count)


outage = StorageOutage()
"""The storage outage, if there is one, as this process sees it."""
