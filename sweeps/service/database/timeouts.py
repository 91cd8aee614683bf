"""Timeouts of the database: longest on a command line, shorter in a service, and shortest in a service that is
ending."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

DEFAULT_S = 30.0
SERVICE_S = 2.0
"""Timeout in seconds in a service. With up to 2.8 s of waiting for a connection, it still answers 503 within 5 s."""
UPGRADE_S = 600.0
"""Timeout in seconds while this process or another one creates or changes the tables."""
ENDING_S = 1.0
"""Timeout in seconds in a service that has been told to end."""

_context_s: ContextVar[float] = ContextVar("context_s", default=DEFAULT_S)


class _Process:
    most_s = math.inf


def timeout_s() -> float:
    """Return the current timeout of this thread, in seconds."""
    return min(_context_s.get(), _Process.most_s)


@contextmanager
def waiting_at_most(seconds: float) -> Iterator[None]:
    """Set how long this context (a thread, a request) waits for the database."""
    before = _context_s.set(seconds)
    try:
        yield
    finally:
        _context_s.reset(before)


def process_waits_at_most(seconds: float) -> None:
    """Limit how long all threads of this process wait for the database, even those already waiting in PostgreSQL."""
    _Process.most_s = seconds
