"""Wall clock time that is robust to jumps of the machine's clock: a jump counts only after it has lasted for a
while."""

from __future__ import annotations

import logging

from sweeps.service.clock import Clock

JUMP_S = 60.0
"""Minimum difference in seconds between wall clock and monotonic clock that counts as a jump."""
SETTLED_AFTER_S = 600.0
"""Seconds after a jump for which the time continues as if there had been none."""

logger = logging.getLogger(__name__)


class SteadyTime:
    """Wall clock without recent jumps."""

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
