"""Recorded progress of one trial of a running sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeps.config.objectives import Objectives, Values
from sweeps.tracking.logged_steps import LoggedSteps
from sweeps.tracking.record import TrialRecord
from sweeps.tracking.trial_history import Weights

CLOSED = ("finished", "pruned")
"""States of trials that are never resumed."""


@dataclass
class TrialProgress:
    """Recorded state of a trial, which decides what still has to be recorded and supplies the trial's description."""

    params: Mapping[str, Any]
    """Sampled values by dotted path."""
    state: str = "running"
    stopped_for_good: bool = False
    """Whether a person has stopped the trial, so that ``resume`` does not continue it."""
    values: Values | None = None
    """Values of the objectives in the trial's best report."""
    best_step: int | None = None
    """Step of the trial's best report."""
    steps: int = 0
    attempts: int = 1
    saved_step: int | None = None
    """Step of the trial's newest checkpoint; None if it has saved none."""
    error: str | None = None
    """Error with which the trial failed; None if it has not failed."""
    violation: str | None = None
    """Description of the limit on a metric that the trial exceeded."""
    checkpoints: dict[str, str] = field(default_factory=dict)
    """URI or artifact path of the ``best`` and the ``last`` checkpoint."""
    weights: dict[str, Weights] = field(default_factory=dict)
    """Step and values of the weights in each checkpoint."""
    steps_tag_at: float = 0.0
    """Monotonic time at which the tag with the trial's steps was last written."""
    logged: LoggedSteps = field(default_factory=LoggedSteps)
    measured: dict[int, Values] = field(default_factory=dict)
    """Values of the objectives at each step, as first measured."""
    exploits: int = 0
    """Number of times that the trial has continued from another trial's state."""
    continued_at: int = -1
    """Step of the other trial's state from which the trial last continued; -1 if there was none."""

    @classmethod
    def of(cls, trial: TrialRecord, replayed: TrialProgress | None) -> TrialProgress:
        """Return the progress of a recorded trial, completed by its metrics in the journal (``replayed``)."""
        replayed = replayed or cls({})
        return cls(
            params=trial.params,
            state=trial.state,
            stopped_for_good=trial.stopped_for_good,
            values=trial.all_values() or None,
            best_step=trial.best_step,
            steps=trial.steps,
            attempts=trial.attempts,
            error=trial.error,
            violation=trial.violation,
            checkpoints=dict(trial.checkpoints),
            weights=dict(trial.weights),
            saved_step=replayed.saved_step
            if replayed.exploits
            else max((each.step for each in trial.weights.values()), default=None),
            logged=replayed.logged,
            measured=replayed.measured if trial.state not in CLOSED else {},
            exploits=replayed.exploits,
            continued_at=replayed.continued_at,
        )

    def go_back(self, step: int) -> None:
        """Record that the trial returns to another trial's state at a step; later steps may be logged again."""
        self.exploits += 1
        self.saved_step = self.continued_at = step
        self.logged.go_back(step)
        self.measured = {each: values for each, values in self.measured.items() if each <= step}

    def notice_beginning(self, step: int) -> None:
        """Record a step at which the trial measures something; must be called before the step is recorded.

        If the trial continued from another trial's state at a later step, it has lost that state and started again.
        Earlier values at such steps, measured with other weights, then do not replace a new measurement.
        """
        if step <= self.continued_at:
            self.logged.begin_anew(self.continued_at)
            self.measured = {each: values for each, values in self.measured.items() if each > self.continued_at}
            self.saved_step = None if step < self.continued_at else self.saved_step
            self.continued_at = -1

    @property
    def kept(self) -> str:
        """Sentence that tells how much of the trial's work is kept after it has stopped."""
        if self.saved_step is None:
            return "It has saved no state"
        if self.saved_step < self.steps:
            return f"Its state of step {self.saved_step:,} is saved"
        return "It saved its state"

    def take_measured(self, objectives: Objectives, step: int, metrics: Mapping[str, float]) -> Values | None:
        """Add the metrics at a step; return the values of the objectives there, or None if the metrics lack one. Values
        that are measured again at the step, after a retry, do not count."""
        values = objectives.values(metrics)
        return None if values is None else self.measured.setdefault(step, values)

    def take_report(self, objectives: Objectives, step: int, values: Values) -> bool:
        """Add the values of the objectives at a step; return whether they are the trial's best so far."""
        if not objectives.improves(values, self.values):
            return False
        self.values, self.best_step = values, step
        return True
