"""The service's clock, which tests can replace, and a wall clock that ignores recent jumps."""

from __future__ import annotations

import logging
import threading
import time

JUMP_S = 60.0
"""Minimum difference in seconds between wall clock and monotonic clock that counts as a jump."""
SETTLED_AFTER_S = 600.0
"""Seconds after a jump of the clock for which the time continues as if the clock had not jumped."""

logger = logging.getLogger(__name__)


class Clock:
    def now(self) -> float:
        """Return the time in seconds since 1970 (UTC), as in the service's database."""
        return time.time()

    def steady(self) -> float:
        """Return monotonic seconds, including the time in which the machine was suspended."""
        # Outside of Linux the monotonic clock either counts suspended time itself or cannot.
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def wait(self, wake: threading.Event, seconds: float) -> bool:
        """Sleep until ``seconds`` have passed or ``wake`` is set; return whether it is set."""
        return wake.wait(seconds)


class SteadyTime:
    """Wall clock that follows a jump of the machine's clock only after it has lasted for ``SETTLED_AFTER_S``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.now() - clock.steady()
        """Accepted offset of the wall clock from the monotonic one, in seconds."""
        self._current = self._offset
        """Last observed offset."""
        self._since = clock.steady()
        """Monotonic time of the last jump."""

    def now(self) -> float:
        """Return the time, in seconds since 1970."""
        steady = self._clock.steady()
        offset = self._clock.now() - steady
        if abs(offset - self._current) > JUMP_S:
            logger.warning(
                "the clock was set %s by %.0f s; schedules follow it if this lasts for %.0f s",
                "forward" if offset > self._current else "back",
                abs(offset - self._current),
                SETTLED_AFTER_S,
            )
            self._since = steady
        self._current = offset
        if abs(offset - self._offset) <= JUMP_S or steady - self._since >= SETTLED_AFTER_S:
            self._offset = offset
        return steady + self._offset

    @property
    def is_settled(self) -> bool:
        """Whether the clock has not jumped for ``SETTLED_AFTER_S``; it is then trusted more than recorded times."""
        return self._clock.steady() - self._since >= SETTLED_AFTER_S
