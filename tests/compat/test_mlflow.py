"""Contract with the private names and tables of MLflow that Sweeps uses: a failure says which of them has moved."""

from __future__ import annotations

import inspect
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from recording import record_small_sweep

from sweeps.compat import mlflow as private
from sweeps.tracking import metric_history, sqlite_file, store
from sweeps.tracking.metric_history import fetch_histories
from sweeps.tracking.reader import list_sweeps, load_sweep
from sweeps.tracking.store import fetch_tags

COLUMNS = {
    "experiments": {"experiment_id", "name", "artifact_location", "lifecycle_stage"},
    "runs": {
        *("run_uuid", "name", "source_type", "source_name", "entry_point_name", "user_id", "status", "start_time"),
        *("end_time", "source_version", "lifecycle_stage", "artifact_uri", "experiment_id"),
    },
    "tags": {"run_uuid", "key", "value"},
    "params": {"run_uuid", "key", "value"},
    "metrics": {"run_uuid", "key", "value", "timestamp", "step", "is_nan"},
    "latest_metrics": {"run_uuid", "key", "value", "timestamp", "step", "is_nan"},
}
"""Every column that a statement of ours names."""


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture
def recorded(uri: str) -> str:
    record_small_sweep(uri)
    return uri


def all_reads(uri: str) -> list[Any]:
    sweep = load_sweep(uri, "digits-1")
    runs = [trial.run_id for trial in sweep.trials]
    return [
        list_sweeps(uri),
        sweep,
        fetch_tags(MlflowClient(uri), sweep.mlflow.run_id),
        fetch_histories(uri, runs, "eval/loss"),
        fetch_histories(uri, runs, "no/such/metric"),
    ]


def test_the_tables_have_the_columns_that_are_queried(recorded: str) -> None:
    with closing(sqlite3.connect(recorded.removeprefix("sqlite:///"))) as database:
        for table, columns in COLUMNS.items():
            found = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
            assert columns <= found, f"MLflow has moved columns of its table {table}: {columns - found}"


def test_tables_of_a_version_that_was_not_tried_are_read_through_the_client_with_the_same_answers(
    recorded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as tried:
        tried.setattr(sqlite_file, "TRIED_SCHEMAS", _versions(recorded))
        by_sql = all_reads(recorded)
    monkeypatch.setattr(sqlite_file, "TRIED_SCHEMAS", frozenset({"0123456789ab"}))
    for module in (store, metric_history):
        monkeypatch.setattr(module, "reading", lambda path: pytest.fail(f"{path} was read in SQL"))
    assert all_reads(recorded) == by_sql
    assert len(by_sql[1].trials) == len(by_sql[3]) == 4


def test_a_store_that_mlflow_is_creating_is_empty_in_any_version(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        database.execute("INSERT INTO alembic_version VALUES ('an early one')")
        database.execute("CREATE TABLE runs (run_uuid VARCHAR(32))")
        database.commit()
    assert list_sweeps(f"sqlite:///{tmp_path}/mlflow.db") == []


def test_the_tracking_uri_is_that_of_the_block_and_then_the_one_before(uri: str) -> None:
    import mlflow

    before = mlflow.get_tracking_uri()
    with private.use_tracking_uri(uri):
        assert mlflow.get_tracking_uri() == uri
    assert mlflow.get_tracking_uri() == before


def test_requests_take_their_settings_from_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import environment_variables

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
    variables = [getattr(environment_variables, name) for name in private.REQUEST_SETTINGS]
    for variable in variables:
        monkeypatch.setattr(variable, "get", variable.get)  # put back at the end
    private.override_request_settings({"MLFLOW_HTTP_REQUEST_TIMEOUT": 7}.get)
    assert variables[0].get() == 7
    assert variables[1].get() == 3  # from the environment


def test_a_request_is_sent_to_the_address_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.exceptions import MlflowException

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(MlflowException, match=r"127\.0\.0\.1:9/api/x failed"):
        private.post("http://127.0.0.1:9", "/api/x", {"key": 1})


def test_files_of_a_run_are_written_listed_and_deleted(tmp_path: Path, uri: str) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_text("text")
    repository = private.artifact_repository((tmp_path / "artifacts").as_uri(), uri)
    repository.log_artifacts(str(tmp_path / "source"), "folder")
    (found,) = repository.list_artifacts("folder")
    assert (found.path, found.is_dir, found.file_size) == ("folder/file", False, 4)
    private.download_file(repository, "folder/file", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_text() == "text"
    repository.delete_artifacts("folder/file")
    assert not (tmp_path / "artifacts" / "folder" / "file").exists()


def test_the_pytorch_flavour_has_the_loader_that_ours_extends() -> None:
    import mlflow.pytorch

    from sweeps.compat import sweeps_class_names

    ours = inspect.signature(sweeps_class_names._load_pyfunc).parameters
    assert list(ours) == list(inspect.signature(mlflow.pytorch._load_pyfunc).parameters)[: len(ours)]


def _versions(uri: str) -> frozenset[str]:
    with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as database:
        return frozenset(version for (version,) in database.execute("SELECT version_num FROM alembic_version"))
