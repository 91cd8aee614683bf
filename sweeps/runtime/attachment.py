"""Messages that give a restarted broker the state of its dead predecessor, from the driver and the trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

BROKER_DIED = "the process of the sweep's broker has died"
"""Reason for which all trials begin again, in words."""


class NotAttached(Exception):
    """A restarted broker has not received its predecessor's state from the driver yet."""


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
