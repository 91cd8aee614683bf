"""The driver's answers to reports and ends, and what they mean for the Tune actor of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sweeps.runtime.events import Ended


@dataclass(frozen=True)
class Answer:
    """The answer to a report or an attempt's end: it is recorded, with all that was before, and the trial goes on
    unless this says otherwise."""

    trial: str
    attempt: int
    result: Mapping[str, Any] = field(default_factory=dict)
    """The trial's newest report as Tune has it, if the actor returns."""
    returns: bool = False
    """Whether the trial's actor returns to Tune, which ends or pauses the trial."""
    stops: bool = False
    """Whether the trial is over for good, so that its workers stop without a checkpoint."""
    error: str | None = None
    """Reason for which the attempt fails."""
    tries_again: bool | None = None
    """Whether an attempt that fails is followed by another one; None if it does not fail."""


class Outcome(NamedTuple):
    """The message to a trial's actor that waits for its workers: what it is to tell Tune."""

    result: Mapping[str, Any]
    """The trial's newest report; empty if it has made none, or with an error."""
    end: Ended | None = None
    """End of its workers; None if the driver has decided about the trial while they are there."""
    error: str | None = None
    """See ``Answer``."""
    tries_again: bool | None = None
    """See ``Answer``; None also if the driver has not answered."""
