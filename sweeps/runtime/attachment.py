"""Messages between the driver, trials and a process of the broker that takes the place of one that has died."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

BROKER_DIED = "the process of the sweep's broker has died"
"""Reason for which all trials begin again, in words."""


class NotAttached(Exception):
    """The driver has not told a new process of the broker yet what the one before knew."""


@dataclass(frozen=True)
class TrialSoFar:
    """The driver's knowledge of a trial, for a new process of the broker."""

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
    """Step of the last report that Tune has received from the attempts before; None: none."""
    lost_after: int | None = None
    """Step after which events of earlier attempts may have been lost with a process of the broker; None: none have."""
