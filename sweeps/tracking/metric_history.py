"""Names and histories of the metrics of many runs, read by one SQL query of an SQLite store, otherwise by one call per
run. Both functions raise ``TrackingUnreachable`` if the store does not answer."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from sweeps import constants
from sweeps.tracking.client import connect, reading_from
from sweeps.tracking.mlflow_characters import from_name, to_name
from sweeps.tracking.sqlite_file import queryable_file, reading

CALLS_AT_ONCE = 8
"""Number of concurrent calls to a server."""
RUNS_PER_QUERY = 500
"""Number of runs in one SQL statement; SQLite takes about a thousand variables in one."""
LARGEST = 1e308
"""Maximum absolute value of a metric; MLflow stores infinite ones as larger numbers."""


class HistoryPoint(NamedTuple):
    """Value of a metric at a step."""

    step: int
    value: float
    time: float = math.nan
    """Unix time of the report."""


def fetch_histories(
    uri: str, runs: Sequence[str], metric: str, *, finite: bool = True
) -> dict[str, list[HistoryPoint]]:
    """Return the finite values of a metric by run, in the order of the steps, or all of its values; runs without values
    are left out.

    If a step was reported twice, as a trial of population based training may do, the later value counts.
    """
    path, name = queryable_file(uri), to_name(metric)
    runs = [run for run in runs if run]  # MLflow may have removed one
    if path is None:
        return _from_client(uri, runs, name, finite=finite)
    histories: dict[str, dict[int, HistoryPoint]] = {}
    with reading(path) as database:
        for start in range(0, len(runs), RUNS_PER_QUERY):
            chunk = runs[start : start + RUNS_PER_QUERY]
            for run, step, number, milliseconds in _query(database, chunk, name):
                value = math.nan if number is None else number
                if not finite or abs(value) < LARGEST:
                    histories.setdefault(run, {})[step] = HistoryPoint(step, value, milliseconds / 1000)
    return {run: list(points.values()) for run, points in histories.items()}


def fetch_metric_names(uri: str, runs: Sequence[str]) -> set[str]:
    """Return the names of all metrics that runs have reported, except the best values; names that are too long for
    MLflow stay truncated."""
    path = queryable_file(uri)
    if path is None:
        client = connect(uri)

        def fetch(run: str) -> list[str]:
            with reading_from(uri):
                return list(client.get_run(run).data.metrics)

        with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
            found = pool.map(fetch, filter(None, runs))
            return _reported({from_name(name) for names in found for name in names})
    names = set[str]()
    with reading(path) as database:
        for start in range(0, len(runs), RUNS_PER_QUERY):
            chunk = runs[start : start + RUNS_PER_QUERY]
            marks = ",".join("?" * len(chunk))
            query = f"SELECT DISTINCT key FROM latest_metrics WHERE run_uuid IN ({marks})"  # noqa: S608
            names |= {from_name(name) for (name,) in database.execute(query, tuple(chunk))}
    return _reported(names)


def _reported(names: set[str]) -> set[str]:
    return names - {constants.BEST_PREFIX + name for name in names}


def _query(database: sqlite3.Connection, runs: Sequence[str], metric: str) -> sqlite3.Cursor:
    marks = ",".join("?" * len(runs))
    return database.execute(
        "SELECT run_uuid, step, CASE WHEN is_nan THEN NULL ELSE value END, timestamp FROM metrics "  # noqa: S608
        f"WHERE run_uuid IN ({marks}) AND key = ? ORDER BY run_uuid, step, timestamp",
        (*runs, metric),
    )


def _from_client(uri: str, runs: Sequence[str], metric: str, *, finite: bool) -> dict[str, list[HistoryPoint]]:
    client = connect(uri)

    def fetch(run: str) -> list[HistoryPoint]:
        with reading_from(uri):
            found = client.get_metric_history(run, metric)
        found = sorted(found, key=lambda each: (each.step, each.timestamp))
        points = [HistoryPoint(each.step, each.value, each.timestamp / 1000) for each in found]
        return list({each.step: each for each in points if not finite or abs(each.value) < LARGEST}.values())

    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        histories = dict(zip(runs, pool.map(fetch, runs), strict=True))
    return {run: points for run, points in histories.items() if points}
