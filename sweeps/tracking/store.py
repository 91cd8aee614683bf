"""Queries for the runs of a tracking store. An SQLite store is queried in SQL, which takes milliseconds because it
needs no ``import mlflow``; other stores are read through MLflow's client. Both ways return the same runs, and raise
``TrackingUnreachable`` if the store does not answer."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sweeps.constants import PARAMETER_PREFIX
from sweeps.tracking.client import connect, reading_from
from sweeps.tracking.mlflow_characters import from_name
from sweeps.tracking.sqlite_file import queryable_file, reading

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.store.entities import PagedList

T = TypeVar("T")

PAGE = 1000
"""Number of runs that a server returns at once."""


@dataclass(frozen=True, kw_only=True)
class RawRun:
    """A run as MLflow stores it, with times in milliseconds."""

    run_id: str
    experiment_id: str
    experiment: str
    status: str
    started: int
    ended: int | None
    tags: dict[str, str]
    params: dict[str, str]


def fetch_runs(uri: str, tags: Mapping[str, str], *, deleted: bool = False) -> list[RawRun]:
    """Return the runs that have all of the given tags, at least one, in the order of their start: the active ones, or
    the deleted ones that MLflow still keeps."""
    path = queryable_file(uri)
    runs = _from_client(uri, tags, deleted) if path is None else _from_sqlite(path, tags, deleted)
    return sorted(runs, key=lambda run: (run.started, run.run_id))


def fetch_metrics(uri: str, tags: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Return the latest value of every metric, by run and name, of the runs that have all of the given tags."""
    client = connect(uri)
    from mlflow.entities import ViewType

    with reading_from(uri):
        experiments, filters = [*_experiments(client, ViewType.ACTIVE_ONLY)], tag_filter(tags)
        runs = all_pages(lambda token: client.search_runs(experiments, filters, max_results=PAGE, page_token=token))
    return {run.info.run_id: dict(run.data.metrics) for run in runs}


def changed_parameters(uri: str, run_id: str) -> list[str]:
    """Return the paths of values that population based training changed in a trial, when it copied another's state."""
    with reading_from(uri):
        data = connect(uri).get_run(run_id).data
    names = (from_name(each) for each in {**data.metrics, **data.tags})
    return sorted(name.removeprefix(PARAMETER_PREFIX) for name in names if name.startswith(PARAMETER_PREFIX))


def fetch_tags(client: MlflowClient, run_id: str) -> dict[str, str]:
    """Return the tags of one run of a client's store; empty if an SQLite store has no such run."""
    path = queryable_file(client.tracking_uri)
    if path is None:
        with reading_from(client.tracking_uri):
            return dict(client.get_run(run_id).data.tags)
    with reading(path) as database:
        rows: Iterable[tuple[str, str]] = database.execute("SELECT key, value FROM tags WHERE run_uuid = ?", (run_id,))
        return dict(rows)


def fetch_sqlite_artifact_uri(uri: str, run_id: str) -> str | None:
    """Return the URI of a run's artifacts from an SQLite store; None from any other store, or if there is no such run.

    MLflow's client reads all of a run for it, which takes 5 ms.
    """
    if (path := queryable_file(uri)) is None:
        return None
    with reading(path) as database:
        found: tuple[str] | None = database.execute(
            "SELECT artifact_uri FROM runs WHERE run_uuid = ?", (run_id,)
        ).fetchone()
    return None if found is None else found[0]


def tag_filter(tags: Mapping[str, str]) -> str:
    """Return the filter of ``search_runs`` for runs that have all of the given tags."""
    quoted = {key: f'"{value}"' if "'" in value else f"'{value}'" for key, value in tags.items()}
    return " AND ".join(f'tags."{key}" = {value}' for key, value in quoted.items())


def _from_sqlite(path: Path, tags: Mapping[str, str], deleted: bool) -> list[RawRun]:
    if not path.exists():
        return []
    wanted = " AND ".join(
        "EXISTS (SELECT 1 FROM tags t WHERE t.run_uuid = r.run_uuid AND t.key = ? AND t.value = ?)" for _ in tags
    )
    where = f"r.lifecycle_stage = '{'deleted' if deleted else 'active'}' AND {wanted}"
    values = [text for pair in tags.items() for text in pair]
    source = f"FROM runs r JOIN experiments e ON e.experiment_id = r.experiment_id WHERE {where}"
    columns = "r.run_uuid, r.experiment_id, e.name, r.status, r.start_time, r.end_time"
    with reading(path) as database:
        try:
            # One transaction: runs, tags and params must be of the same moment.
            database.execute("BEGIN")
            runs = {
                run_id: RawRun(
                    run_id=run_id,
                    experiment_id=str(experiment_id),
                    experiment=name,
                    status=status,
                    started=started or 0,
                    ended=ended,
                    tags={},
                    params={},
                )
                for run_id, experiment_id, name, status, started, ended in database.execute(
                    f"SELECT {columns} {source}", values
                )
            }
            for table in ("tags", "params"):
                query = f"SELECT run_uuid, key, value FROM {table} WHERE run_uuid IN (SELECT r.run_uuid {source})"  # noqa: S608
                for run_id, key, value in database.execute(query, values):
                    getattr(runs[run_id], table)[key] = value
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):  # MLflow is creating the store at the moment
                return []
            raise
    return [*runs.values()]


def _from_client(uri: str, tags: Mapping[str, str], deleted: bool) -> list[RawRun]:
    client = connect(uri)
    from mlflow.entities import ViewType

    filters, kind = tag_filter(tags), ViewType.DELETED_ONLY if deleted else ViewType.ACTIVE_ONLY
    with reading_from(uri):  # if an experiment was deleted, its runs were, too
        experiments = _experiments(client, ViewType.ALL if deleted else ViewType.ACTIVE_ONLY)
        if not experiments:
            return []
        runs = all_pages(
            lambda token: client.search_runs(list(experiments), filters, kind, max_results=PAGE, page_token=token)
        )
    return [
        RawRun(
            run_id=run.info.run_id,
            experiment_id=str(run.info.experiment_id),
            experiment=experiments[run.info.experiment_id],
            status=run.info.status,
            started=run.info.start_time or 0,
            ended=run.info.end_time or None,
            tags=dict(run.data.tags),
            params=dict(run.data.params),
        )
        for run in runs
    ]


def _experiments(client: MlflowClient, kind: int) -> dict[str, str]:
    """Return the names of all experiments of a kind of MLflow's ``ViewType``, by id."""
    found = all_pages(lambda token: client.search_experiments(kind, max_results=PAGE, page_token=token))
    return {each.experiment_id: each.name for each in found}


def all_pages(ask: Callable[[str | None], PagedList[T]]) -> list[T]:
    """Return the items of all pages of an MLflow query. ``ask`` returns the page with a token; None is the first
    page."""
    page = ask(None)
    found = list(page)
    while page.token:
        page = ask(page.token)
        found.extend(page)
    return found
