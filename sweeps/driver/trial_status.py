"""One trial of a running sweep, as far as it has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from sweeps.config.objectives import Values
from sweeps.tracking.failed_attempts import FailedAttempt
from sweeps.tracking.spans import Span

State = Literal["waiting", "running", "finished", "pruned", "failed", "stopped"]


@dataclass
class TrialStatus:
    """One trial, as far as it has come."""

    trial: str
    parameters: dict[str, Any]
    state: State = "waiting"
    attempt: int = 0
    earlier_attempts: int = 0
    """Of sessions before this one."""
    step: int = 0
    last_step: int | None = None
    """The step at which it would end, if it is known."""
    values: Values | None = None
    """Values of the objectives when the first was best."""
    latest: float | None = None
    """Of the first objective."""
    violation: str | None = None
    """The limit on a metric that it broke: it cannot be the best."""
    speed: str = ""
    error: str | None = None
    needs: dict[str, float] = field(default_factory=dict)
    """What its workers reserve together."""
    holds: dict[str, float] = field(default_factory=dict)
    """What they reserve now: nothing, while the trial is paused."""
    assigned: float | None = None
    """When it was last started; Unix time."""
    training_since: float | None = None
    """Nothing while its workers start."""
    train_s: float = 0.0
    failure: str | None = None
    """What its workers said of its last failed attempt."""
    failures: list[FailedAttempt] = field(default_factory=list)
    """Its attempts that failed."""
    spans: list[Span] = field(default_factory=list)
    """When and on which workers it trained."""
    ending: bool = False
    """Tune has said that it ended; what its workers posted is still being taken in."""

    @property
    def is_starting(self) -> bool:
        """Its workers do not train yet: they are started, or import."""
        return self.state == "running" and self.training_since is None

    @property
    def value(self) -> float | None:
        """Best value of the first objective so far."""
        return self.values[0] if self.values else None
