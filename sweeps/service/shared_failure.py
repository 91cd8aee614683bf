"""The failure of a slow operation that several threads perform in turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from sweeps.service.database.storage_errors import is_unavailable

T = TypeVar("T")


class SharedFailure:
    """Gives its error to all threads that waited while it failed, since each would otherwise wait for its own
    timeout."""

    def __init__(self) -> None:
        self._last: tuple[Exception | None, float] = (None, 0.0)
        """The last error, and when it was raised."""

    def call(self, function: Callable[[], T], asked: float) -> T:
        """Call a function that needs the database, unless it has failed since ``asked``.

        Args:
            function: The function.
            asked: Time at which the caller began to wait for its turn, by the monotonic clock.
        """
        last, failed = self._last
        if last is not None and failed > asked:
            raise last.with_traceback(None)
        try:
            return function()
        except Exception as error:
            if is_unavailable(error):
                self._last = (error, time.monotonic())
            raise
