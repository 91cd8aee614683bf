"""Recorded sweeps as pandas tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from sweeps.tracking.client import connect
from sweeps.tracking.record import SweepRecord, TrialRecord


def trials_frame(records: Sequence[SweepRecord]) -> pd.DataFrame:
    """A row for each trial; parameters that a trial does not have are missing."""
    return pd.DataFrame([_row(record, trial) for record in records for trial in record.trials])


def curves_frame(records: Sequence[SweepRecord], metric: str | None = None) -> pd.DataFrame:
    """A row for each value of a metric that a trial reported, in order of steps.

    Args:
        records: The sweeps.
        metric: Default: the first objective of each.
    """
    rows = []
    for record in records:
        client = connect(record.mlflow.tracking_uri)
        for trial in record.trials:
            history = client.get_metric_history(trial.run_id, metric or record.metric)
            rows += [
                {
                    "sweep": record.sweep,
                    "trial": trial.trial,
                    "state": trial.state,
                    "step": point.step,
                    "value": point.value,
                    "time": pd.Timestamp(point.timestamp, unit="ms", tz="UTC"),
                }
                for point in sorted(history, key=lambda point: (point.step, point.timestamp))
            ]
    return pd.DataFrame(rows, columns=["sweep", "trial", "state", "step", "value", "time"])


def _row(record: SweepRecord, trial: TrialRecord) -> dict[str, Any]:
    values = trial.values or (trial.value,)
    ended = None if trial.started is None or trial.ended is None else trial.ended - trial.started
    return {
        "sweep": record.sweep,
        "trial": trial.trial,
        "state": trial.state,
        **dict(zip(record.metrics, values, strict=False)),
        "steps": trial.steps,
        "attempts": trial.attempts,
        "seconds": ended,
        "run_id": trial.run_id,
        **trial.params,
    }
