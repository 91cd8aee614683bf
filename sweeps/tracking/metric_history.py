"""Names and histories of the metrics of many runs, read by one SQL query of an SQLite store, otherwise by one call per
run. Both functions raise ``TrackingUnreachable`` if the store does not answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from sweeps import constants
from sweeps.tracking.client import connect, reading_from
from sweeps.tracking.mlflow_characters import from_name, to_name
from sweeps.tracking.sqlite_file import queryable_file, reading

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

T = TypeVar("T")
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
    rows: Iterable[tuple[Any, ...]]
    if path is None:
        rows = _asked_of_client(uri, runs, name)
    else:
        rows = _selected(
            path,
            "SELECT run_uuid, step, CASE WHEN is_nan THEN NULL ELSE value END, timestamp FROM metrics "
            "WHERE run_uuid IN ({runs}) AND key = ? ORDER BY run_uuid, step, timestamp",
            runs,
            name,
        )
    histories: dict[str, dict[int, HistoryPoint]] = {}
    for run, step, number, milliseconds in rows:
        value = math.nan if number is None else number
        if not finite or abs(value) < LARGEST:
            histories.setdefault(run, {})[step] = HistoryPoint(step, value, milliseconds / 1000)
    return {run: list(points.values()) for run, points in histories.items()}


def fetch_metric_names(uri: str, runs: Sequence[str]) -> set[str]:
    """Return the names of all metrics that runs have reported, except the best values; names that are too long for
    MLflow stay truncated."""
    path = queryable_file(uri)
    runs = [run for run in runs if run]  # MLflow may have removed one
    found: Iterable[str]
    if path is None:
        found = chain.from_iterable(_of_each(uri, runs, lambda client, run: client.get_run(run).data.metrics))
    else:
        query = "SELECT DISTINCT key FROM latest_metrics WHERE run_uuid IN ({runs})"
        found = (name for (name,) in _selected(path, query, runs))
    names = set(map(from_name, found))
    return names - {constants.BEST_PREFIX + name for name in names}


def _selected(path: Path, query: str, runs: Sequence[str], *values: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query for many runs; ``{runs}`` in the query stands for their ids."""
    with reading(path) as database:
        for start in range(0, len(runs), RUNS_PER_QUERY):
            chunk = runs[start : start + RUNS_PER_QUERY]
            yield from database.execute(query.format(runs=",".join("?" * len(chunk))), (*chunk, *values))


def _asked_of_client(uri: str, runs: Sequence[str], metric: str) -> Iterator[tuple[str, int, float, int]]:
    """Yield the values of a metric as the SQL query does: by run, in the order of their steps and times."""

    def ask(client: MlflowClient, run: str) -> list[tuple[str, int, float, int]]:
        found = client.get_metric_history(run, metric)  # objects of more than twice the size
        return [(run, each.step, each.value, each.timestamp) for each in sorted(found, key=_order)]

    return chain.from_iterable(_of_each(uri, runs, ask))


def _order(value: Metric) -> tuple[int, int]:
    return value.step, value.timestamp


def _of_each(uri: str, runs: Sequence[str], ask: Callable[[MlflowClient, str], T]) -> list[T]:
    """Call ``ask`` for each run, with several calls at once, and return the answers."""
    client = connect(uri)

    def fetch(run: str) -> T:
        with reading_from(uri):
            return ask(client, run)

    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        return list(pool.map(fetch, runs))
