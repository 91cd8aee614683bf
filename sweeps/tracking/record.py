"""What a sweep is when it is read back from MLflow."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

from sweeps.redact import redact_uri
from sweeps.tracking.failed_attempts import FailedAttempt
from sweeps.tracking.sessions import Session, elapsed
from sweeps.tracking.spans import Span
from sweeps.tracking.values import finite

STATES = ("finished", "pruned", "failed", "running", "stopped")
"""States of a trial, in the order in which they are counted."""


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """One trial: one nested run."""

    trial: str
    state: str
    value: float | None
    """Best value of the sweep's metric that the trial reported."""
    values: tuple[float, ...] = ()
    """Of several objectives, what it reported when the first was best; empty with one objective."""
    violation: str | None = None
    """The limit on a metric that it broke: it cannot be the best."""
    params: dict[str, Any]
    run_id: str
    steps: int
    attempts: int
    started: float | None = None
    """Unix time."""
    ended: float | None = None
    """Unix time; nothing while it runs."""
    checkpoint: str | None = None
    """URI of its best checkpoint, or of its last if there is no best."""
    error: str | None = None
    spans: tuple[Span, ...] = ()
    """When and on which workers it trained."""
    failures: tuple[FailedAttempt, ...] = ()
    """Its attempts that failed."""
    checkpoints: dict[str, str] = field(default_factory=dict)
    """URIs of its ``best`` and ``last`` checkpoint, as far as they are kept."""

    def shown_value(self) -> float | list[float | None] | None:
        """As ``--json`` shows it: a number, or a list with one for each objective."""
        return [finite(value) for value in self.values] if self.values else finite(self.value)

    def as_json(self) -> dict[str, Any]:
        """The trial in the form of ``--json``."""
        return {
            "trial": self.trial,
            "state": self.state,
            "value": self.shown_value(),
            "params": self.params,
            "run_id": self.run_id,
            "steps": self.steps,
            "attempts": self.attempts,
        }


@dataclass(frozen=True, kw_only=True)
class MlflowIds:
    """Where a sweep is in MLflow."""

    tracking_uri: str
    experiment_id: str
    run_id: str

    def as_json(self) -> dict[str, str]:
        return {
            "tracking_uri": redact_uri(self.tracking_uri),
            "experiment_id": self.experiment_id,
            "run_id": self.run_id,
        }


@dataclass(frozen=True, kw_only=True)
class SweepTime:
    """Seconds of a sweep and the share of them that trained."""

    wall_s: float = 0.0
    """Seconds that the sweep's drivers ran: pauses between a driver's end and the next one's start do not count."""
    train_s: float = 0.0
    goodput: float = 0.0
    cpu_s: float = 0.0
    """Seconds of CPUs that trials held."""
    gpu_s: float = 0.0
    """Seconds of GPUs that trials held."""
    cost: float = 0.0
    """Of those, in the currency of the prices in ``search.stop.cost``; 0 without prices."""
    sessions: tuple[Session, ...] = ()
    """When a driver ran, in order; none in a record of an older version."""

    def as_json(self) -> dict[str, float]:
        return {"wall_s": self.wall_s, "train_s": self.train_s, "goodput": self.goodput}


@dataclass(frozen=True, kw_only=True)
class SweepSummary:
    """One line of ``list``."""

    sweep: str
    conf: str
    experiment: str
    experiment_id: str
    status: str
    metrics: tuple[str, ...]
    modes: tuple[str, ...]
    best: float | None
    """Best value of the first objective."""
    counts: dict[str, int]
    started: float
    """Unix time."""
    wall_s: float
    run_id: str
    planned: int | None = None
    """How many trials it is to have; nothing where its record does not say."""

    def as_json(self) -> dict[str, Any]:
        """The line in the form of ``list --json``."""
        return {
            "sweep": self.sweep,
            "conf": self.conf,
            "experiment": self.experiment,
            "status": self.status,
            "metric": one_or_all(self.metrics),
            "mode": one_or_all(self.modes),
            "best": finite(self.best),
            "counts": self.counts,
            "started": self.started,
            "wall_s": self.wall_s,
            "run_id": self.run_id,
        }


@dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """One sweep with its trials."""

    sweep: str
    status: str
    metrics: tuple[str, ...]
    modes: tuple[str, ...]
    counts: dict[str, int]
    front: list[TrialRecord]
    """The best trial, or of several objectives the Pareto front; empty if no trial has a value."""
    mlflow: MlflowIds
    trials: list[TrialRecord]
    time: SweepTime
    conf: str
    started: float
    """Unix time."""
    experiment: str = ""
    command: str = ""
    planned: int | None = None
    """How many trials it is to have; nothing where its record does not say."""
    tags: dict[str, str] = field(default_factory=dict)
    """All tags of the parent run."""

    @property
    def metric(self) -> str:
        """The first objective."""
        return self.metrics[0]

    @property
    def mode(self) -> str:
        """Of the first objective."""
        return self.modes[0]

    @property
    def best(self) -> TrialRecord | None:
        """The best trial; of several objectives, by the first."""
        return self.front[0] if self.front else None

    def elapsed(self, moment: float) -> float:
        """Seconds that the sweep had run until a moment, in Unix time, without the pauses between its drivers.
        ``SweepTime.wall_s`` is this at its end, and all durations and time axes of a sweep are."""
        sessions = self.time.sessions or ((self.started, math.inf),)
        if self.status == "running":  # its driver writes now and then how long it has run
            sessions = (*sessions[:-1], (sessions[-1][0], math.inf))
        return elapsed(sessions, moment)

    def took(self, trial: TrialRecord) -> float | None:
        """Seconds from a trial's start to its end, or to now while it runs, without the pauses between drivers."""
        if trial.started is None:
            return None
        return max(0.0, self.elapsed(trial.ended or time.time()) - self.elapsed(trial.started))

    def as_json(self) -> dict[str, Any]:
        """The document that ``run``, ``show`` and ``resume`` print with ``--json``."""
        front = [
            {
                "trial": trial.trial,
                "value": trial.shown_value(),
                "params": trial.params,
                "run_id": trial.run_id,
                "checkpoint": trial.checkpoint,
            }
            for trial in self.front
        ]
        return {
            "sweep": self.sweep,
            "status": self.status,
            "metric": one_or_all(self.metrics),
            "mode": one_or_all(self.modes),
            "counts": self.counts,
            "best": front if len(self.metrics) > 1 else front[0] if front else None,
            "mlflow": self.mlflow.as_json(),
            "trials": [trial.as_json() for trial in self.trials],
            "time": self.time.as_json(),
        }


def one_or_all(names: tuple[str, ...]) -> str | list[str]:
    """As ``--json`` shows metrics and modes: with one objective plainly, with several as a list."""
    return names[0] if len(names) == 1 else list(names)
