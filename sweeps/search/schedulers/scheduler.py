"""Interface of schedulers, which decide which trials continue; other code starts and stops them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Protocol

from sweeps.config.objectives import Objectives
from sweeps.runtime.checkpoint_layout import Origin
from sweeps.search.schedulers.decisions import DecisionLog
from sweeps.search.schedulers.places import Places

Result = Mapping[str, Any]
"""Metrics and progress that a trial reports."""


class ScheduledTrial(Protocol):
    """A trial as a scheduler sees it; its properties are always current."""

    @property
    def id(self) -> str:
        """Id of the trial, such as ``0003``."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Values of the trial, by path."""

    @property
    def num_exploits(self) -> int:
        """Number of times that the trial has continued from another trial's state."""

    @property
    def status(self) -> Literal["waiting", "running", "paused", "ended"]:
        """Status of the trial; waiting while its workers start."""


class Verdict(StrEnum):
    """Decision about a trial after a report."""

    CONTINUE = "CONTINUE"
    PAUSE = "PAUSE"
    STOP = "STOP"


@dataclass(frozen=True)
class Exploit:
    """Decision that a trial continues from another trial's state, with changed values."""

    trial: str
    origin: Origin
    parameters: Mapping[str, Any]
    """New values of the trial, by path."""
    decision: Mapping[str, Any] = field(default_factory=dict)
    """The scheduler's decision, which is recorded together with the rest, completely or not at all."""


Choice = tuple[list[ScheduledTrial], list[ScheduledTrial]]
"""Paused trials that may be resumed, in this order, and those to stop."""


class Turn(NamedTuple):
    """The paused trial that continues, and those that are stopped."""

    resumed: ScheduledTrial | None = None
    stopped: Sequence[ScheduledTrial] = ()


class Scheduler:
    """Scheduler that lets every trial train to its end; the base class of the others, which record each decision before
    it is carried out.

    The code that runs the trials calls ``add`` when a trial begins, or begins again after it has failed, ``report``
    after each of its reports except the last, and in the end ``complete`` or ``leave``.
    """

    def __init__(self, objectives: Objectives, decisions: DecisionLog | None = None):
        """
        Args:
            objectives: The search's metrics, of which the first decides, and its limits.
            decisions: Log of earlier decisions, which also records new ones; default: empty, without recording.
        """
        self._decisions = decisions or DecisionLog()
        self._violation = objectives.violation
        self._objective, self._sign = objectives.metrics[0], 1.0 if objectives.modes[0] == "max" else -1.0
        """The metric; ``self._sign`` times a value is larger for a better one."""

    @property
    def may_pause(self) -> bool | None:
        """Whether a trial that begins or continues now may be paused later; None if its config decides."""
        return None

    def add(self, trial: ScheduledTrial, places: Places) -> bool:
        """Add a trial; return whether it is paused immediately."""
        return False

    def report(self, trial: ScheduledTrial, result: Result, places: Places) -> Verdict | Exploit:
        """Decide about a trial that has reported."""
        return Verdict.CONTINUE

    def complete(self, trial: ScheduledTrial, result: Result, places: Places) -> None:
        """Record that a running trial has ended, complete or not, after this last report."""

    def leave(self, trial: ScheduledTrial, places: Places) -> None:
        """Record that a trial has failed, or was stopped while it did not run."""

    def repeat(self, number: str | None, event: Mapping[str, Any]) -> bool | None:
        """Repeat a recorded decision after all those before it.

        Args:
            number: The trial's id; None if the decision is not about one trial.
            event: The decision.

        Returns:
            Whether it stops the trial; None if this scheduler cannot tell.
        """
        return None

    def explain(self, number: str, event: Mapping[str, Any]) -> str | None:
        """Return the reason for a decision that ``repeat`` is about to repeat; None if there is none."""
        return None
