"""Recorded sweeps are read the same by SQL and through MLflow, also while others write."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mlflow import MlflowClient
from recording import open_recorder, record_small_sweep
from waiting import wait_until

from sweeps import constants
from sweeps.errors import UnknownName
from sweeps.tracking import metric_history, store
from sweeps.tracking.journal import Tags
from sweeps.tracking.reader import list_sweeps, load_sweep


def test_both_readers_see_the_same_without_deleted_runs(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record_small_sweep(uri)
    record_small_sweep(uri, "o'brien-2")
    by_sql = list_sweeps(uri), load_sweep(uri, "digits-1"), load_sweep(uri, "o'brien-2")
    with monkeypatch.context() as by_mlflow:
        by_mlflow.setattr(store, "queryable_file", lambda uri: None)
        by_mlflow.setattr(store, "PAGE", 3)
        assert (list_sweeps(uri), load_sweep(uri, "digits-1"), load_sweep(uri, "o'brien-2")) == by_sql
    assert [summary.sweep for summary in by_sql[0]] == ["o'brien-2", "digits-1"]
    assert by_sql[0][1].best == 0.2
    with pytest.raises(UnknownName, match="did you mean digits-1"):
        load_sweep(uri, "digit-1")
    MlflowClient(uri).delete_run(by_sql[1].mlflow.run_id)
    assert [each.sweep for each in list_sweeps(uri)] == ["o'brien-2"], "a deleted run is left out"


def test_names_of_the_metrics_of_more_runs_than_a_query_takes_are_read_the_same_by_both_readers(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_small_sweep(uri)
    runs = [trial.run_id for trial in load_sweep(uri, "digits-1").trials]
    reading = metric_history.reading

    @contextmanager
    def reading_by_an_old_sqlite(path: Path) -> Iterator[sqlite3.Connection]:
        with reading(path) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)
            yield database

    with monkeypatch.context() as old:
        old.setattr(metric_history, "reading", reading_by_an_old_sqlite)
        by_sql = metric_history.fetch_metric_names(uri, [*map(str, range(1000)), *runs])
    monkeypatch.setattr(metric_history, "queryable_file", lambda uri: None)
    assert metric_history.fetch_metric_names(uri, ["", *runs]) == by_sql
    assert {"eval/loss", "train/loss"} <= by_sql


def test_tags_that_somebody_has_edited_hide_no_sweep(uri: str) -> None:
    record_small_sweep(uri)
    client, whole = MlflowClient(uri), load_sweep(uri, "digits-1")
    tags_of = {
        whole.mlflow.run_id: [
            *(constants.TAG_COUNTS, constants.TAG_TIME, constants.TAG_PLANNED, constants.TAG_BEST_VALUE)
        ],
        whole.trials[0].run_id: [constants.TAG_ACCOUNT, constants.TAG_STEPS, *constants.WEIGHTS_TAGS.values()],
    }
    for edited in ("{", "[1]", "7", '{"wall_s": [], "account": 3, "running": "x"}', "nan", "[x]"):
        for run, tags in tags_of.items():
            for tag in tags:
                client.set_tag(run, tag, edited)
        assert [each.sweep for each in list_sweeps(uri)] == ["digits-1"], edited
        assert len(load_sweep(uri, "digits-1").trials) == len(whole.trials), edited


def test_no_file_and_no_tables_mean_no_sweeps(tmp_path: Path) -> None:
    assert list_sweeps(f"sqlite:///{tmp_path}/none.db") == []
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "empty.db").touch()
    assert list_sweeps(f"sqlite:///{tmp_path}/empty.db") == []


def test_a_sweep_whose_driver_fell_silent_was_interrupted(uri: str) -> None:
    recorder = open_recorder(uri)
    assert load_sweep(uri, "digits-1").status == "running"
    recorder._delivery.put(Tags("", {constants.TAG_HEARTBEAT: f"{time.time() - 61:.3f}"}))
    wait_until(lambda: load_sweep(uri, "digits-1").status == "interrupted")
    assert list_sweeps(uri)[0].status == "interrupted"
    recorder.close("stopped")
    assert load_sweep(uri, "digits-1").status == "stopped"


def test_listing_the_default_store_imports_no_heavy_library(uri: str) -> None:
    record_small_sweep(uri)
    code = (
        "import sys; from sweeps.tracking.reader import list_sweeps, load_sweep\n"
        f"assert list_sweeps({uri!r}); load_sweep({uri!r}, 'digits-1')\n"
        "heavy = {'mlflow', 'ray', 'torch', 'optuna', 'hydra', 'sqlalchemy', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_reading_while_a_writer_holds_the_database_and_after_it_was_killed_within_a_transaction(
    uri: str, tmp_path: Path
) -> None:
    record_small_sweep(uri)
    with sqlite3.connect(tmp_path / "mlflow.db") as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert len(list_sweeps(uri)) == 1
    code = (
        f"import os, signal, sqlite3; c = sqlite3.connect({str(tmp_path / 'mlflow.db')!r})\n"
        "c.execute('PRAGMA cache_size = 1'); c.execute('UPDATE tags SET value = value || hex(zeroblob(999))')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-S", "-c", code], check=False)
    assert (tmp_path / "mlflow.db-journal").exists()
    assert list_sweeps(uri)[0].status == "finished"
