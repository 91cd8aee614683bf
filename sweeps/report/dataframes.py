"""Recorded sweeps as pandas data frames."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pandas as pd

from sweeps.errors import UserError
from sweeps.report.figures.importance import FEWEST_TRIALS, importances
from sweeps.report.report_data import ReportData, gather
from sweeps.texts.suggestions import did_you_mean
from sweeps.tracking.metric_history import fetch_histories, fetch_metric_names
from sweeps.tracking.record import SweepRecord, TrialRecord


def trials_frame(records: Sequence[SweepRecord]) -> pd.DataFrame:
    """Data frame with a row for each trial; a parameter that a trial does not have is missing."""
    rows = [_row(record, trial) for record in records for trial in record.trials]
    return pd.DataFrame(rows, columns=None if rows else _columns(records))  # also before the first trial


def curves_frame(records: Sequence[SweepRecord], metric: str | None = None) -> pd.DataFrame:
    """Data frame with a row for each finite value of a metric that a trial reported, in the order of steps. The default
    metric is the first objective of each sweep. If trials reported others and not this one, a warning says so."""
    rows = []
    for record in records:
        uri, runs = record.mlflow.tracking_uri, [trial.run_id for trial in record.trials]
        histories = fetch_histories(uri, runs, metric or record.metric)
        if metric and not any(histories.values()) and (known := fetch_metric_names(uri, runs)) and metric not in known:
            hint = did_you_mean(metric, known)
            warnings.warn(f"{record.sweep}: no trial has reported {metric}{hint}", stacklevel=3)
        for trial in record.trials:
            for point in histories.get(trial.run_id, []):
                rows.append((record.sweep, trial.trial, trial.state, point.step, point.value))  # noqa: PERF401 - nested
    return pd.DataFrame(rows, columns=["sweep", "trial", "state", "step", "value"])


def importance_frame(record: SweepRecord, objective: int = 0) -> pd.DataFrame:
    """Importance of each parameter, the most important first; empty if there are too few trials.

    Each of Optuna's evaluators has a column that sums to 1; ``trials`` is the number of trials that it is based on.
    """
    if not -len(record.metrics) <= objective < len(record.metrics):
        raise UserError(
            f"objective={objective}: must be less than {len(record.metrics)}, "
            f"the number of objectives of {record.sweep}"
        )
    data = gather(record)
    table = importances_table(data, objective)
    if table.empty:
        why = (
            f"{len(data.valued)} of its trials have a value, and {FEWEST_TRIALS} are needed"
            if len(data.valued) < FEWEST_TRIALS
            else "its trials differ in no parameter, or all have the same value"
        )
        warnings.warn(f"{record.sweep}: the importance of parameters cannot be computed: {why}", stacklevel=3)
    return table


def importances_table(data: ReportData, objective: int = 0) -> pd.DataFrame:
    """Data frame of parameter importances; empty, without a warning, if there are too few trials."""
    paths = {name: path for path, name in data.names.items()}
    found = pd.DataFrame(importances(data, objective)).rename(index=paths).rename_axis("parameter")
    found = found.loc[found.fillna(0.0).mean(axis=1).sort_values(ascending=False).index]
    return found.assign(trials=[len(data.having(path)) for path in found.index]) if len(found) else found


def _columns(records: Sequence[SweepRecord]) -> list[str]:
    """Columns that the table of trials always has, even without trials."""
    metrics = dict.fromkeys(metric for record in records for metric in record.metrics)
    return list(dict.fromkeys(["sweep", "trial", "state", *metrics, "steps", "attempts", "seconds", "run_id"]))


def _row(record: SweepRecord, trial: TrialRecord) -> dict[str, Any]:
    values = dict(zip(record.metrics, trial.values or (trial.value,), strict=False))
    seconds = None if trial.ended is None else record.took(trial)
    return {
        "sweep": record.sweep,
        "trial": trial.trial,
        "state": trial.state,
        **values,
        "steps": trial.steps,
        "attempts": trial.attempts,
        "seconds": seconds,
        "run_id": trial.run_id,
        **trial.params,
        **values,  # also an objective with the name of another column, such as "seconds"
    }
