"""An SQLite store that is written in transactions of whole batches has what MLflow's client would have written."""

from __future__ import annotations

import math
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from recording import CONFIG, POINT, history, open_recorder
from waiting import wait_until

from sweeps.tracking import sqlite_file, trial_recorder
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.recorder import Recorder

TABLES = {
    "runs": "name, source_type, source_name, entry_point_name, user_id, status, source_version, lifecycle_stage,"
    " experiment_id, deleted_time, start_time > 0, end_time > 0, replace(artifact_uri, run_uuid, '')",
    "params": "key, value",
    "tags": "key, value",
    "metrics": "key, value, step, is_nan, timestamp",
    "latest_metrics": "key, value, step, is_nan, timestamp",
}
OF_THE_MOMENT = ("sweeps.heartbeat", "sweeps.spans", "mlflow.note.content", "mlflow.loggedArtifacts")


def tables(uri: str) -> dict[str, list[Any]]:
    """Return all columns of the runs of trials, with their keys instead of their ids."""
    trials = "(SELECT run_uuid AS id, value AS trial FROM tags WHERE key = 'sweeps.trial')"
    with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as database:
        found = {
            table: sorted(
                database.execute(f"SELECT trial, {columns} FROM {table} JOIN {trials} ON run_uuid = id"), key=repr
            )
            for table, columns in TABLES.items()
        }
    found["tags"] = [row for row in found["tags"] if row[1] not in OF_THE_MOMENT and row[1] != "mlflow.parentRunId"]
    return found


def record_odd_values(recorder: Recorder) -> None:
    log = recorder.trials.log
    for trial in ("0", "1"):
        recorder.trials.start(trial, POINT | {"text": "é\0" + trial * 7000, "a b@c": None}, CONFIG, 1, pool="p")
        for step in (1, 2, 5, 3):
            log(trial, step, {"eval/loss": 1 / step, "nan": math.nan, "huge": math.inf, "ratio@5": -math.inf}, 10**12)
        assert recorder._delivery.flush()  # the rest is another batch
        log(trial, 9, {"eval/loss": math.nan}, 10**12 + 5)
        log(trial, 7, {"eval/loss": 0.125, "later": 2**60}, 10**12 + 9)
        recorder.trials.record_exploit(trial, 1, 2, {"train.lr": 0.5, "train.optimizer": "sgd"})
        log(trial, 3, {"eval/loss": 0.25}, 10**12 + 20)
        log(trial, 3, {"nan": 1.0, "huge": 3}, 10**12 + 20)
    recorder.trials.end("0", "failed", 9, 2, "ValueError: no")
    assert recorder._delivery.flush()
    recorder.trials.start("0", POINT, CONFIG, 2)  # its error is deleted
    recorder.trials.end("0", "finished", 9, 2)


def test_every_table_is_as_mlflows_client_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trial_recorder, "now_ms", lambda: 10**12 + 50)
    stores = {}
    for way, tried in (("transactions", sqlite_file.TRIED_SCHEMAS), ("client", frozenset())):
        monkeypatch.setattr(sqlite_file, "TRIED_SCHEMAS", tried)
        uri = f"sqlite:///{tmp_path}/{way}.db"
        recorder = open_recorder(uri, folder=tmp_path / way)
        record_odd_values(recorder)
        assert not recorder.close("finished")
        stores[way] = tables(uri)
    assert stores["transactions"] == stores["client"]
    assert all(len(rows) > 1 for rows in stores["client"].values())


def test_a_sweep_needs_no_call_of_mlflows_client_for_its_trials(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = open_recorder(uri)
    written: list[str] = []
    for name in ("create_run", "log_batch", "set_terminated", "update_run", "delete_tag"):
        monkeypatch.setattr(MlflowClient, name, lambda *_, _name=name, **__: written.append(_name))
    record_odd_values(recorder)
    assert recorder._delivery.flush()
    assert not written
    monkeypatch.undo()
    assert not recorder.close("finished")


@pytest.mark.parametrize("deleted", ["run", "experiment"])
def test_what_a_user_has_deleted_is_refused_by_mlflow_and_named_once_and_the_rest_is_written(
    uri: str, deleted: str, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = open_recorder(uri)
    for trial in ("0", "1"):
        recorder.trials.start(trial, POINT, CONFIG, 1)
    assert recorder._delivery.flush()
    ids = load_sweep(uri, "digits-1").trials[0]
    client = MlflowClient(uri)
    if deleted == "run":
        client.delete_run(ids.run_id)
    else:
        client.delete_experiment(client.get_run(ids.run_id).info.experiment_id)
    recorder.trials.start("2", POINT, CONFIG, 1)
    for step in range(3):
        for trial in ("0", "1", "2"):
            recorder.trials.log(trial, step, {"eval/loss": 1.0})
        assert recorder._delivery.flush()
    refused = {"run": ["trial 0"], "experiment": ["trial 0", "trial 1", "trial 2"]}[deleted]
    told = [message for message in caplog.messages if "refuses" in message]
    assert [sum(text in message for message in told) for text in refused] == [1] * len(refused)
    if deleted == "run":
        assert not recorder.close("finished")
        others = load_sweep(uri, "digits-1").trials
        assert [(each.trial, len(history(uri, each.run_id, "eval/loss"))) for each in others] == [("1", 3), ("2", 3)]
    else:
        recorder.close("finished")


def test_a_file_that_another_process_has_locked_is_written_when_it_is_free(
    uri: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_file, "WAIT_FOR_LOCK_S", 0.1)
    recorder = open_recorder(uri)
    with closing(sqlite3.connect(uri.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        recorder.trials.start("0", POINT, CONFIG, 1)
        recorder.trials.log("0", 1, {"eval/loss": 1.0})
        wait_until(lambda: any("database is locked" in message for message in caplog.messages))
        other.execute("ROLLBACK")
    assert not recorder.close("finished")
    assert load_sweep(uri, "digits-1").trials[0].value == 1.0


def test_a_store_whose_file_is_replaced_by_a_copy_is_written_by_mlflows_client_too(uri: str) -> None:
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    assert recorder._delivery.flush()
    file = Path(uri.removeprefix("sqlite:///"))
    Path(shutil.copy(file, f"{file}.copy")).replace(file)
    recorder.trials.log("0", 1, {"eval/loss": 1.0})
    recorder.trials.end("0", "finished", 1, 1)
    assert not recorder.close("finished", patience_s=10)
    sweep = load_sweep(uri, "digits-1")
    assert sweep.trials[0].value == 1.0
    assert "**finished**" in sweep.tags["mlflow.note.content"]


def test_a_store_that_is_moved_away_and_back_is_written_by_mlflows_client_too(uri: str) -> None:
    recorder = open_recorder(uri)
    file = Path(uri.removeprefix("sqlite:///"))
    away = file.rename(f"{file}.away")
    with pytest.raises(MlflowException, match="readonly database"):
        recorder._delivery._beat()
    assert not file.exists()
    away.rename(file)
    assert not recorder.close("finished", patience_s=10)
    assert "**finished**" in load_sweep(uri, "digits-1").tags["mlflow.note.content"]
