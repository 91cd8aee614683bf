"""The driver's answers to reports and ends of attempts, and their meaning for a trial's Tune actor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sweeps.runtime.events import Ended


@dataclass(frozen=True)
class Answer:
    """The driver's answer to a report or an attempt's end, given once this and all earlier events are recorded. The
    trial continues unless a field says otherwise."""

    trial: str
    attempt: int
    result: Mapping[str, Any] = field(default_factory=dict)
    """The trial's newest report in Tune's form, if the actor returns."""
    returns: bool = False
    """Whether the trial's actor returns to Tune, which ends or pauses the trial; its workers leave it."""
    stops: bool = False
    """Whether the trial is over for good, so that its workers stop without a checkpoint."""
    error: str | None = None
    """Reason why the attempt fails."""
    tries_again: bool | None = None
    """Whether another attempt follows a failed one; None if the attempt did not fail."""


class Outcome(NamedTuple):
    """Message to a trial's actor that waits for its workers, with the result to pass on to Tune."""

    result: Mapping[str, Any]
    """The trial's newest report; empty if it has made none, or if there is an ``error``."""
    end: Ended | None = None
    """End of the workers; None if the driver has decided about the trial while they still run."""
    error: str | None = None
    """Reason why the attempt fails."""
    tries_again: bool | None = None
    """Whether another attempt follows a failed one; None if it did not fail, or the driver has not answered."""
