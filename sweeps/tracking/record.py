"""What a sweep is when it is read back from MLflow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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

    def as_json(self) -> dict[str, Any]:
        """The trial in the form of ``--json``."""
        return {
            "trial": self.trial,
            "state": self.state,
            "value": finite(self.value),
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
        return {"tracking_uri": self.tracking_uri, "experiment_id": self.experiment_id, "run_id": self.run_id}


@dataclass(frozen=True, kw_only=True)
class SweepTime:
    """Seconds of a sweep and the share of them that trained."""

    wall_s: float = 0.0
    train_s: float = 0.0
    goodput: float = 0.0

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
    metric: str
    mode: str
    best: float | None
    counts: dict[str, int]
    started: float
    """Unix time."""
    wall_s: float
    run_id: str

    def as_json(self) -> dict[str, Any]:
        """The line in the form of ``list --json``."""
        return {
            "sweep": self.sweep,
            "conf": self.conf,
            "experiment": self.experiment,
            "status": self.status,
            "metric": self.metric,
            "mode": self.mode,
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
    metric: str
    mode: str
    counts: dict[str, int]
    best: TrialRecord | None
    mlflow: MlflowIds
    trials: list[TrialRecord]
    time: SweepTime
    conf: str
    started: float
    """Unix time."""
    experiment: str = ""
    command: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    """All tags of the parent run."""

    def as_json(self) -> dict[str, Any]:
        """The document that ``run``, ``show`` and ``resume`` print with ``--json``."""
        best = self.best
        return {
            "sweep": self.sweep,
            "status": self.status,
            "metric": self.metric,
            "mode": self.mode,
            "counts": self.counts,
            "best": None
            if best is None
            else {
                "trial": best.trial,
                "value": finite(best.value),
                "params": best.params,
                "run_id": best.run_id,
                "checkpoint": best.checkpoint,
            },
            "mlflow": self.mlflow.as_json(),
            "trials": [trial.as_json() for trial in self.trials],
            "time": self.time.as_json(),
        }
