"""Table of a sweep's learning curves, which ``run --simulate`` replays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from sweeps.errors import UserError
from sweeps.report.held_workers import held_s
from sweeps.space.distributions import encode
from sweeps.tracking.metric_history import HistoryPoint, fetch_histories, fetch_metric_names
from sweeps.tracking.record import SweepRecord, TrialRecord, ended_spans
from sweeps.tracking.values import to_text

COLUMNS = CONFIG_ID, STEP, ELAPSED = "config_id", "step", "elapsed_s"
"""First columns of a table of learning curves, as ``sweeps/simulate/recorded_rows.py`` reads them."""


def curve_table(record: SweepRecord) -> pd.DataFrame:
    """Table of a sweep's learning curves.

    Args:
        record: The sweep.

    Returns:
        A row for each report of a trial, with the columns ``config_id`` (the trial), ``step``, ``elapsed_s`` (seconds
        that it had held its workers), one for each searched path and one for each metric. Failed trials and evaluations
        at step 0 are left out, as are metrics with the names of the first columns. Parameters that a trial lacks and
        metrics that a report lacks are missing values; lists and mappings among choices are JSON, as are all choices of
        a parameter that has numbers and texts, or a text such as ``3`` or ``null``.

    Raises:
        UserError: No trial has reported the first objective.
    """
    uri, trials = record.mlflow.tracking_uri, [trial for trial in record.trials if trial.state != "failed"]
    runs = [trial.run_id for trial in trials]
    reported = fetch_histories(uri, runs, record.metric).items()
    objective = {run: kept for run, points in reported if (kept := [each for each in points if each.step > 0])}
    if not objective:
        raise UserError(f"{record.sweep}: every trial has failed or not reported {record.metric}; there are no curves")
    further = [name for name in record.metrics[1:] if name not in COLUMNS]
    names = sorted(fetch_metric_names(uri, runs) - {*record.metrics, *COLUMNS})
    histories = {name: _by_step(fetch_histories(uri, runs, name)) for name in (*further, *names)}
    mixed = _of_several_types(trials)
    rows = [
        {
            CONFIG_ID: trial.trial,
            STEP: point.step,
            ELAPSED: trained,
            **{path: _written(value, path in mixed) for path, value in trial.params.items()},
            record.metric: point.value,
            **{name: values.get((trial.run_id, point.step)) for name, values in histories.items()},
        }
        for trial in trials
        for points in [objective.get(trial.run_id, [])]
        for point, trained in zip(points, trained_s(record, trial, [each.time for each in points]), strict=True)
    ]
    table = pd.DataFrame(rows)
    return table.drop(columns=[name for name in histories if table[name].isna().all()])


def write_curve_table(record: SweepRecord, file: Path) -> None:
    """Write a sweep's ``curve_table`` as Parquet.

    Raises:
        UserError: There are no curves, or the file cannot be written.
    """
    table = curve_table(record)
    try:
        table.to_parquet(file, index=False)
    except OSError as error:
        raise UserError(
            f"--curves {file}: cannot be written ({error.strerror or error}); choose another file"
        ) from error


def trained_s(record: SweepRecord, trial: TrialRecord, moments: Sequence[float]) -> list[float]:
    """Seconds for which a trial had held its workers at some Unix times; for older records, seconds since its start,
    excluding the pauses between drivers. Periods that are no longer recorded count as spread over the time before."""
    if not trial.spans:
        return [max(0.0, record.elapsed(each) - record.elapsed(trial.started or each)) for each in moments]
    spans = ended_spans(record, trial, math.inf)
    missing = (held_s(record, trial) or 0.0) - sum(end - span.held for span, end in ended_spans(record, trial))
    began = record.elapsed(trial.started or 0.0)
    before = record.elapsed(spans[0][0].held) - began

    def held(moment: float) -> float:
        passed = max(0.0, record.elapsed(moment) - began)
        recorded = sum(max(0.0, min(moment, end) - span.held) for span, end in spans)
        return recorded + missing * (passed / before if passed < before else 1.0)

    return [held(each) for each in moments]


def _of_several_types(trials: Iterable[TrialRecord]) -> set[str]:
    """Parameters with choices of several types, such as 3 and ``auto``, which no column of a Parquet file can hold, or
    with a text such as ``3``, which could be read as a choice of another type."""
    types: dict[str, set[type]] = {}
    ambiguous = set[str]()
    for trial in trials:
        for path, value in trial.params.items():
            if value is not None:
                known = float if type(value) is int else type(encode(value))
                types.setdefault(path, set()).add(known)
            if isinstance(value, str) and to_text(value) != value:
                ambiguous.add(path)
    return {path for path, each in types.items() if len(each) > 1} | ambiguous


def _written(value: Any, is_mixed: bool) -> Any:
    return to_text(value) if is_mixed and value is not None else encode(value)


def _by_step(histories: dict[str, list[HistoryPoint]]) -> dict[tuple[str, int], Any]:
    return {(run, point.step): point.value for run, points in histories.items() for point in points}
