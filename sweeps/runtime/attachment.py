"""Re-attachment of a restarted broker to the driver, so that a sweep survives the death of the broker's process.

When the broker's process dies, Ray starts another one behind the same handles. The new process knows no trial, and lets
none begin. The driver notices this by ``NotAttached``, and attaches: it sends the settings of the whole sweep again,
and its knowledge of each trial. The actor of a trial gets an end with ``BROKER_DIED`` instead of its next report
(``TrialSide.next_outcome``), and begins the trial again from its newest checkpoint; workers of earlier attempts are
told to end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

BROKER_DIED = "the process of the sweep's broker has died"
"""Error message of attempts that were lost with the broker's process."""


class NotAttached(Exception):
    """Raised while a restarted broker has not received its predecessor's state from the driver."""


class NotCurrent(Exception):
    """Raised for an attempt that is over or was lost with the broker's process: it gets no workers, and workers that
    report must stop, since they would remove the checkpoint from which the next attempt continues."""


Told = tuple[str, tuple[Any, ...], dict[str, Any]]
"""Message of the driver for the whole sweep: the broker's method to call, and its arguments by position and name."""


@dataclass(frozen=True)
class TrialSoFar:
    """The driver's knowledge of a trial, for a restarted broker."""

    attempt: int = 0
    """Number of the trial's latest attempt."""
    failures: int = 0
    """Number of the trial's failed attempts."""
    step: int = 0
    """Last step whose events have arrived."""


class Begun(NamedTuple):
    """An attempt that has begun."""

    attempt: int
    """Number of the attempt, from 1."""
    delivered: int | None
    """Step of the last report of previous attempts; None if there was none."""
    lost_after: int | None = None
    """Step after which events of earlier attempts may have been lost because the broker's process died; None if none
    were lost."""
