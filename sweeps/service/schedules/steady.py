"""The time by which schedules fire when somebody sets the machine's clock: a clock that jumps is believed once it has
stayed where it is."""

from __future__ import annotations

import logging

from sweeps.service.clock import Clock

JUMP_S = 60.0
"""Seconds by which the wall clock and the steady clock may come apart between two looks."""
SETTLED_AFTER_S = 600.0
"""Seconds after a jump until when the time is what it would be without it."""

logger = logging.getLogger(__name__)


class SteadyTime:
    """The wall clock, but for jumps that have just happened."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.now() - clock.steady()
        """Offset of the wall clock from the steady one, in seconds, as believed so far."""
        self._new = self._offset
        """As it is."""
        self._since = clock.steady()
        """When it has become so."""

    def now(self) -> float:
        """The time, in seconds since 1970."""
        steady = self._clock.steady()
        offset = self._clock.now() - steady
        if abs(offset - self._new) > JUMP_S:
            logger.warning(
                "the clock was put %s by %.0f s; schedules follow it when it has stayed so for %.0f s",
                "forward" if offset > self._new else "back",
                abs(offset - self._new),
                SETTLED_AFTER_S,
            )
            self._since = steady
        self._new = offset
        if abs(offset - self._offset) <= JUMP_S or steady - self._since >= SETTLED_AFTER_S:
            self._offset = offset
        return steady + self._offset

    @property
    def is_settled(self) -> bool:
        """Whether the clock has not jumped for so long, since this began to look: what it says is then taken for true,
        even against what is recorded."""
        return self._clock.steady() - self._since >= SETTLED_AFTER_S
