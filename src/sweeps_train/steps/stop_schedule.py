"""Steps after which workers ask whether to stop, in addition to those at which they communicate anyway."""

from __future__ import annotations

import sys

ASK_WITHIN_S = 1.0
"""Maximum seconds until workers ask again, or one step if that takes longer."""


class StopSchedule:
    """Decides after each step whether the workers ask if they should stop; the same decision on all workers.

    A decision about a report arrives within milliseconds. So workers ask soon after a report, and then less and less
    often: at distances that are powers of two. A node that is taken away may leave them only seconds to save, so they
    ask at least every ``ASK_WITHIN_S`` seconds, or at every step if steps take longer.

    >>> schedule = StopSchedule(0)
    >>> [step for step in range(1, 20) if schedule.is_due(step)]
    [1, 2, 4, 8, 16]
    >>> schedule.asked(20, step_s=0.4)
    >>> [step for step in range(21, 30) if schedule.is_due(step)]
    [22, 24, 26, 28]
    """

    def __init__(self, step: int):
        self._reported = self._asked = step
        self._every = sys.maxsize

    def is_due(self, step: int) -> bool:
        """Whether the workers ask after this step; a call counts as asking."""
        steps = step - self._reported
        if steps & (steps - 1) and step - self._asked < self._every:
            return False
        self._asked = step
        return True

    def asked(self, step: int, *, step_s: float) -> None:
        """Record that the workers have asked after a step, for another reason; ``step_s`` is the same on all
        workers."""
        self._asked, self._every = step, max(1, int(ASK_WITHIN_S / step_s))

    def reported(self, step: int) -> None:
        """Record that a step was reported and awaits a decision."""
        self._reported = step
