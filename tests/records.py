"""Records of sweeps and trials that no store has."""

from __future__ import annotations

from typing import Any

from sweeps.tracking.record import MlflowIds, SweepRecord, SweepTime, TrialRecord


def sweep_record(**parts: Any) -> SweepRecord:
    """A finished sweep of one objective, unless its parts say otherwise."""
    usual: dict[str, Any] = {"sweep": "s", "status": "finished", "conf": "digits", "started": 0.0, "time": SweepTime()}
    usual |= {"metrics": ("eval/loss",), "modes": ("min",), "counts": {}, "front": [], "trials": []}
    usual["mlflow"] = MlflowIds(tracking_uri="sqlite:///none.db", experiment_id="1", run_id="r")
    return SweepRecord(**usual | parts)


def trial_record(
    trial: str | int = 0, value: float | None = None, state: str = "finished", **parts: Any
) -> TrialRecord:
    """A trial, given by its id or its number."""
    name = trial if isinstance(trial, str) else f"{trial:04}"
    usual: dict[str, Any] = {"params": {}, "run_id": f"run-{name}", "steps": 1, "attempts": 1}
    return TrialRecord(trial=name, value=value, state=state, **usual | parts)
