"""Attaching, by which a sweep survives the death of its broker's process.

Ray starts another process behind the same handles. It knows no trial, and lets none begin. The driver finds that out
from ``NotAttached``, and attaches: it tells again what holds for the whole sweep, and what it knows of each trial. The
actor of a trial learns of it from an end with ``BROKER_DIED`` instead of its next report (``ended_with_broker``), and
begins the trial again from its newest checkpoint; workers of earlier attempts are sent home.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from sweeps.runtime.events import Ended, now_ms

BROKER_DIED = "the process of the sweep's broker has died"
"""Reason for which all trials begin again, in words."""


class NotAttached(Exception):
    """A restarted broker has not received its predecessor's state from the driver yet."""


Told = tuple[str, tuple[Any, ...]]
"""A message of the driver that holds for the whole sweep: a method of the broker, and its arguments."""


@dataclass(frozen=True)
class TrialSoFar:
    """The driver's knowledge of a trial, for a restarted broker."""

    attempt: int = 0
    """Number of its latest attempt."""
    failures: int = 0
    """Number of its attempts that have failed."""
    step: int = 0
    """Last step whose events have arrived."""


class Begun(NamedTuple):
    """An attempt that has begun."""

    attempt: int
    """Its number, from 1."""
    delivered: int | None
    """Step of the last report that the attempts before have made; None: none."""
    lost_after: int | None = None
    """Step after which events of earlier attempts may have been lost with a process of the broker; None: none have."""


def ended_with_broker(trial: str, attempt: int) -> Ended:
    """The end of an attempt that began with a process of the broker that has died; it is no failure."""
    return Ended(trial, attempt, BROKER_DIED, moved=BROKER_DIED, timestamp_ms=now_ms())
