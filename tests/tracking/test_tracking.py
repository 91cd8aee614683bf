"""A sweep in MLflow: what is recorded, that it is read back the same two ways, and what a lost server does."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from recording import (
    COMMAND,
    CONFIG,
    POINT,
    Server,
    artifact_files,
    history,
    open_recorder,
    record_small_sweep,
    wait_until,
)

from sweeps import constants
from sweeps.config.objectives import Objectives
from sweeps.config.search import Limit
from sweeps.errors import TrackingUnreachable, UnknownName, UserError
from sweeps.redact import redact_uri
from sweeps.tracking import store
from sweeps.tracking.artifact_uploader import CheckpointKind
from sweeps.tracking.held_checkpoints import hold
from sweeps.tracking.journal import Tags
from sweeps.tracking.logged_steps import StepSet
from sweeps.tracking.reader import list_sweeps, load_sweep
from sweeps.tracking.spans import Span
from sweeps.tracking.store import fetch_runs
from sweeps.tracking.summary import run_name
from sweeps.tracking.uris import sqlite_path
from sweeps.tracking.values import from_text, metric_name, to_text

# --- what is recorded --------------------------------------------------------------------------------------------


def test_every_metric_is_at_its_step_exactly_once(uri: str) -> None:
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    for step in range(1, 1501):
        recorder.trials.log("0", step, {"eval/loss": 1 / step, "train/loss": float(step)}, step)
    recorder.trials.end("0", "finished", 1500, 1)
    assert not recorder.close("finished")
    run_id = load_sweep(uri, "digits-1").trials[0].run_id
    assert history(uri, run_id, "eval/loss") == [(step, 1 / step) for step in range(1, 1501)]
    assert history(uri, run_id, "train/loss") == [(step, float(step)) for step in range(1, 1501)]


def test_steps_that_a_retry_reports_again_are_left_out(uri: str) -> None:
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    for step in (10, 20, 30):
        recorder.trials.log("0", step, {"eval/loss": float(step)})
    recorder.trials.end("0", "failed", 30, 1, "RuntimeError: out of memory")
    recorder.trials.start("0", POINT, CONFIG, 2)
    for step in (20, 30, 40):
        recorder.trials.log("0", step, {"eval/loss": step + 0.5, "late": 1.0})
    recorder.trials.end("0", "finished", 40, 2)
    recorder.close("finished")
    sweep = load_sweep(uri, "digits-1")
    assert history(uri, sweep.trials[0].run_id, "eval/loss") == [(10, 10), (20, 20), (30, 30), (40, 40.5)]
    assert history(uri, sweep.trials[0].run_id, "late") == [(20, 1), (30, 1), (40, 1)]
    assert [(trial.state, trial.attempts, trial.error) for trial in sweep.trials] == [("finished", 2, None)]


def test_a_resumed_sweep_goes_on_in_the_same_runs(uri: str) -> None:
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    recorder.trials.log("0", 10, {"eval/loss": 1.0})
    recorder.update({"running": 1}, [("0", (1.0,), POINT)], {"wall_s": 1})
    recorder.close("interrupted")
    before = load_sweep(uri, "digits-1")

    recorder = open_recorder(uri, resume=True)
    recorder.trials.start("0", POINT, CONFIG, 2)
    recorder.trials.log("0", 10, {"eval/loss": 3.0})
    recorder.trials.log("0", 20, {"eval/loss": 2.0})
    recorder.trials.start("1", {"train.lr": 0.5}, CONFIG, 1)
    recorder.update({"running": 2}, [("1", (0.5,), {"train.lr": 0.5})], {"wall_s": 1})
    recorder.close("finished")

    after = load_sweep(uri, "digits-1")
    assert after.mlflow == before.mlflow
    assert after.trials[0].run_id == before.trials[0].run_id
    assert len(after.trials) == 2
    assert history(uri, after.trials[0].run_id, "eval/loss") == [(10, 1.0), (20, 2.0)]
    assert after.trials[0].value == 1.0
    # Tags of parameters that the new best trial does not have are gone.
    assert {key for key in after.tags if key.startswith("best.")} == {"best.train.lr"}


def test_runs_are_nested_and_carry_names_tags_parameters_and_configs(uri: str) -> None:
    from mlflow import MlflowClient
    from mlflow.artifacts import load_text

    record_small_sweep(uri)
    client, sweep = MlflowClient(uri), load_sweep(uri, "digits-1")
    parent = client.get_run(sweep.mlflow.run_id)
    assert parent.info.run_name == "digits-1"
    assert parent.info.status == "FINISHED"
    assert parent.data.tags["mlflow.user"]
    assert parent.data.tags["mlflow.source.name"] == "python -m sweeps"
    assert parent.data.tags[constants.TAG_COMMAND] == COMMAND
    assert parent.data.tags["best.train.lr"] == "0.001"
    assert parent.data.metrics == {"best/eval/loss": 0.2, "time/wall_s": 7.0}
    assert load_text(f"{parent.info.artifact_uri}/{constants.CONFIG_ARTIFACT}") == CONFIG
    statuses = []
    for trial in sweep.trials:
        run = client.get_run(trial.run_id)
        statuses.append(run.info.status)
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.data.params == {"train.lr": repr(0.001 * (int(trial.trial) + 1))} | {
            "model.lora.r": "16",
            "train.optimizer": "adamw",
        }
        assert load_text(f"{run.info.artifact_uri}/{constants.CONFIG_ARTIFACT}") == CONFIG
        assert run.info.end_time
    assert statuses == ["FINISHED", "FINISHED", "FAILED", "KILLED"]
    assert client.get_run(sweep.trials[0].run_id).info.run_name == "000 lr=0.001 r=16 optimizer=adamw"
    assert sweep.trials[2].error == "ValueError: no"


def test_the_document_of_json_has_the_promised_form(uri: str) -> None:
    record_small_sweep(uri)
    document = json.loads(json.dumps(load_sweep(uri, "digits-1").as_json(), allow_nan=False))
    assert list(document) == ["sweep", "status", "metric", "mode", "counts", "best", "mlflow", "trials", "time"]
    assert document["counts"] == {"finished": 1, "pruned": 1, "failed": 1, "running": 0, "stopped": 1}
    assert document["time"] == {"wall_s": 7.0, "train_s": 5.0, "goodput": 0.7}
    trial = document["trials"][0]
    assert trial | {"run_id": ""} == {
        "trial": "0",
        "state": "finished",
        "value": 0.2,
        "params": {"model.lora.r": 16, "train.lr": 0.001, "train.optimizer": "adamw"},
        "run_id": "",
        "steps": 5,
        "attempts": 1,
    }
    assert set(document["best"]) == {"trial", "value", "params", "run_id", "checkpoint"}
    assert document["mlflow"]["tracking_uri"] == uri


def test_when_and_where_a_trial_trained_is_read_back_as_far_as_a_tag_goes(uri: str) -> None:
    spans = [Span(held=at, trained=at + 0.5, ended=at + 9.0, workers=("host/0", "host/1")) for at in range(200)]
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    recorder.trials.record_spans("0", spans)
    assert not recorder.close("finished")
    read = load_sweep(uri, "digits-1").trials[0].spans
    assert 50 < len(read) < 200
    assert list(read) == spans[-len(read) :]


def test_the_table_and_the_summary(uri: str) -> None:
    from mlflow import MlflowClient

    record_small_sweep(uri)
    sweep = load_sweep(uri, "digits-1")
    table = MlflowClient(uri).load_table(sweep.mlflow.experiment_id, constants.TRIALS_ARTIFACT, [sweep.mlflow.run_id])
    assert list(table["state"]) == ["finished", "pruned", "failed", "stopped"]
    assert list(table["train.lr"]) == [0.001, 0.002, 0.003, 0.004]
    note = sweep.tags["mlflow.note.content"]
    assert "Digits." in note
    assert "trial 0" in note
    assert "python -m sweeps show digits-1" in note


def test_of_several_objectives_the_front_is_recorded_and_marked(uri: str) -> None:
    objectives = Objectives(("eval/loss", "speed"), ("min", "max"), {"memory": Limit(max=10)})
    recorder = open_recorder(uri, objectives=objectives)
    for trial, speed in (("0", 1.0), ("1", 3.0), ("2", 2.0)):
        recorder.trials.start(trial, {"train.lr": float(trial)}, CONFIG, 1)
        recorder.trials.log(trial, 1, {"eval/loss": 1.0 + int(trial), "speed": speed})
        recorder.trials.log(trial, 2, {"eval/loss": 4.0 + int(trial), "speed": 9.0})  # worse by the first objective
        recorder.trials.log(trial, 3, {"memory": 10.0 + int(trial)})
    recorder.update({"running": 3}, [("0", (1.0, 1.0), {}), ("2", (3.0, 2.0), {})], {"wall_s": 1.0})
    recorder.update({"finished": 3}, [("0", (1.0, 1.0), {}), ("1", (2.0, 3.0), {})], {"wall_s": 1.0})
    recorder.close("finished")
    sweep = load_sweep(uri, "digits-1")
    document = sweep.as_json()
    assert document["metric"] == ["eval/loss", "speed"]
    assert document["mode"] == ["min", "max"]
    assert [trial["value"] for trial in document["trials"]] == [[1.0, 1.0], [2.0, 3.0], [3.0, 2.0]]
    assert [(best["trial"], best["value"]) for best in document["best"]] == [("0", [1.0, 1.0]), ("1", [2.0, 3.0])]
    assert [trial.violation is not None for trial in sweep.trials] == [False, True, True]
    marked = fetch_runs(uri, {constants.TAG_PARETO: "true"})
    assert sorted(run.tags[constants.TAG_TRIAL] for run in marked) == ["0", "1"]
    assert "Pareto front of 2 trials" in sweep.tags["mlflow.note.content"]
    assert history(uri, sweep.mlflow.run_id, "best/speed")[-1][1] == 3.0
    listed = list_sweeps(uri)[0].as_json()
    assert listed["metric"] == ["eval/loss", "speed"]
    assert listed["best"] == 1.0


def test_values_that_are_no_numbers_stay_visible(uri: str) -> None:
    check_values_that_are_no_numbers(uri)


def check_values_that_are_no_numbers(uri: str) -> None:
    recorder = open_recorder(uri, "odd")
    recorder.trials.start("0", POINT, CONFIG, 1)
    for step, value in enumerate([math.nan, math.inf, -math.inf]):
        recorder.trials.log("0", step, {"loss": value, "eval/loss": math.nan})
    recorder.trials.end("0", "finished", 3, 1)
    recorder.close("finished")
    sweep = load_sweep(uri, "odd")
    values = [value for _, value in history(uri, sweep.trials[0].run_id, "loss")]
    assert math.isnan(values[0])
    assert values[1:] == [sys.float_info.max, -sys.float_info.max]
    assert sweep.as_json()["trials"][0]["value"] is None


def test_a_name_that_mlflow_refuses_does_not_stop_the_others(uri: str) -> None:
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    recorder.trials.log("0", 1, {"recall@5": 0.5, "../up": 1.0, "eval/loss": 2.0})
    recorder.close("finished")
    run_id = load_sweep(uri, "digits-1").trials[0].run_id
    assert [history(uri, run_id, name) for name in ("recall_5", "up", "eval/loss")] == [[(1, 0.5)], [(1, 1)], [(1, 2)]]


def test_a_deleted_run_is_said_once_and_the_others_go_on(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    from mlflow import MlflowClient

    recorder = open_recorder(uri)
    for trial in ("0", "1"):
        recorder.trials.start(trial, POINT, CONFIG, 1)
    wait_until(lambda: len(load_sweep(uri, "digits-1").trials) == 2)
    MlflowClient(uri).delete_run(load_sweep(uri, "digits-1").trials[0].run_id)
    for step in range(5):
        recorder.trials.log("0", step, {"eval/loss": 1.0})
        recorder.trials.log("1", step, {"eval/loss": 1.0})
        time.sleep(0.4)
    assert not recorder.close("finished")
    sweep = load_sweep(uri, "digits-1")
    assert [trial.trial for trial in sweep.trials] == ["1"]
    assert len(history(uri, sweep.trials[0].run_id, "eval/loss")) == 5
    assert sum("refuses" in message for message in caplog.messages) == 1


def test_a_second_sweep_of_a_name_is_refused(uri: str) -> None:
    record_small_sweep(uri)
    with pytest.raises(UserError, match=r"digits-1.*exists already"):
        open_recorder(uri)


def test_after_close_nothing_runs_on(uri: str) -> None:
    import threading

    record_small_sweep(uri)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("sweeps-")]


def test_updates_are_written_at_most_once_a_second(uri: str) -> None:
    recorder = open_recorder(uri)
    batches = []
    log_batch = recorder._client.log_batch
    recorder._client.log_batch = lambda *args, **more: (batches.append(args), log_batch(*args, **more))  # type: ignore[method-assign]
    started = time.monotonic()
    while (passed := time.monotonic() - started) < 2.5:
        recorder.update({"running": int(1000 * passed)}, [("0", (1.0,), POINT)], {"wall_s": 1.0})
        time.sleep(0.005)
    assert 2 <= len(batches) <= 4
    recorder.close("stopped")


def test_nothing_of_mlflows_own_is_printed(tmp_path: Path) -> None:
    code = (
        "import logging; logging.basicConfig(level=logging.INFO)\n"
        "from sweeps.config.objectives import Objectives\n"
        "from sweeps.tracking.parent_run import SweepInfo\n"
        "from sweeps.tracking.recorder import Recorder\n"
        "from pathlib import Path\n"
        "loss = Objectives(('loss',), ('min',))\n"
        "sweep = SweepInfo(name='x-1', conf='x', objectives=loss, folder=Path.cwd(), config_yaml='')\n"
        "r = Recorder.open('sqlite:///mlflow.db', 'x', sweep)\n"
        "r.trials.start('0', {}, '', 1); r.trials.end('0', 'finished', 1, 1)\n"
        "r.close('finished')"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "mlruns" / "1").is_dir()


# --- checkpoints -------------------------------------------------------------------------------------------------


def make_checkpoint(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{folder.name}/{name}")
    return folder


def check_replacement(uri: str, tmp_path: Path) -> None:
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    recorder.trials.record_checkpoint(
        "0", str(make_checkpoint(tmp_path / "one", "model.bin", "sub/old.bin", "only_old.bin")), "best"
    )
    wait_until(lambda: any(trial.checkpoint for trial in load_sweep(uri, "digits-1").trials), 30)
    recorder.trials.record_checkpoint("0", str(make_checkpoint(tmp_path / "two", "model.bin", "sub/new.bin")), "best")
    recorder.trials.record_checkpoint("0", str(make_checkpoint(tmp_path / "three", "model.bin")), "last")
    recorder.close("finished")
    trial = load_sweep(uri, "digits-1").trials[0]
    assert trial.checkpoint == f"runs:/{trial.run_id}/checkpoints/best"
    (tmp_path / "out").mkdir()
    files = artifact_files(uri, trial.run_id, "checkpoints", tmp_path / "out")
    assert files == {
        "best/model.bin": "two/model.bin",
        "best/sub/new.bin": "two/sub/new.bin",
        "last/model.bin": "three/model.bin",
    }


def test_a_newer_checkpoint_replaces_the_older_whole(uri: str, tmp_path: Path) -> None:
    check_replacement(uri, tmp_path)


def test_a_newer_checkpoint_replaces_the_older_whole_on_a_server(server: Server, tmp_path: Path) -> None:
    check_replacement(server.uri, tmp_path)


def test_a_checkpoint_that_was_removed_meanwhile_is_warned_of_once(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    for number in range(3):
        recorder.trials.record_checkpoint("0", str(tmp_path / f"gone{number}"), "last")
        time.sleep(0.4)
    recorder.close("finished")
    assert sum("gone" in message for message in caplog.messages) == 1
    assert load_sweep(uri, "digits-1").trials[0].checkpoint is None


def test_a_reported_checkpoint_is_copied_also_when_the_training_has_removed_it(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    root = Path("outputs", "digits-1", "trials", "0").absolute()
    for step in (1, 2, 3):
        checkpoint = make_checkpoint(root / f"step-{step:08}", "model.bin")
        held = hold(str(checkpoint), str(root))
        shutil.rmtree(checkpoint)  # a better one was saved, whose report is still on its way, or is dropped
        kinds: list[CheckpointKind] = ["last", "best"] if step == 2 else ["last"]
        recorder.trials.record_checkpoint("0", str(checkpoint), *kinds, held=held)
    assert len(list(root.glob("uploads/*"))) <= 2  # the first was replaced, or copied
    dropped = hold(str(make_checkpoint(root / "step-00000004", "model.bin")), str(root))
    assert dropped is not None
    recorder.close("finished")
    trial = load_sweep(uri, "digits-1").trials[0]
    for kind, step in (("last", 3), ("best", 2)):
        (tmp_path / kind).mkdir()
        files = artifact_files(uri, trial.run_id, f"checkpoints/{kind}", tmp_path / kind)
        assert files == {"model.bin": f"step-{step:08}/model.bin"}
    assert not (root / "uploads").exists()
    assert (root / "step-00000004").is_dir()
    assert not caplog.messages


def test_only_the_newest_of_the_checkpoints_that_wait_is_copied(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = open_recorder(uri)
    for number in range(3):
        folder = make_checkpoint(tmp_path / f"c{number}", "model.bin")
        # Not started yet: the copier waits for the trial's run.
        if number == 0:
            recorder.trials.start("0", POINT, CONFIG, 1)
        recorder.trials.record_checkpoint("0", str(folder), "last")
        if number < 2:
            shutil.rmtree(folder)
    recorder.close("finished")
    trial = load_sweep(uri, "digits-1").trials[0]
    (tmp_path / "out").mkdir()
    assert artifact_files(uri, trial.run_id, "checkpoints/last", tmp_path / "out") == {"model.bin": "c2/model.bin"}
    assert not caplog.messages


@pytest.mark.parametrize(("how", "expected"), [("reference", "file:///far/away"), ("none", None)])
def test_checkpoints_can_be_only_named_or_left_out(uri: str, how: str, expected: str | None) -> None:
    recorder = open_recorder(uri, checkpoints=how)
    recorder.trials.start("0", POINT, CONFIG, 1)
    recorder.trials.record_checkpoint("0", "/far/away", "best")
    recorder.close("finished")
    assert load_sweep(uri, "digits-1").trials[0].checkpoint == expected


# --- reading -----------------------------------------------------------------------------------------------------


def test_both_readers_see_the_same(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record_small_sweep(uri)
    record_small_sweep(uri, "o'brien-2")
    by_sql = list_sweeps(uri), load_sweep(uri, "digits-1"), load_sweep(uri, "o'brien-2", "digits")
    monkeypatch.setattr(store, "queryable_file", lambda uri: None)
    monkeypatch.setattr(store, "PAGE", 3)
    assert (list_sweeps(uri), load_sweep(uri, "digits-1"), load_sweep(uri, "o'brien-2", "digits")) == by_sql
    assert [summary.sweep for summary in by_sql[0]] == ["o'brien-2", "digits-1"]
    assert by_sql[0][1].best == 0.2


def test_a_server_shows_the_same_as_its_database(server: Server, tmp_path: Path) -> None:
    record_small_sweep(server.uri)
    by_server, by_sql = load_sweep(server.uri, "digits-1"), load_sweep(f"sqlite:///{tmp_path}/mlflow.db", "digits-1")
    assert by_server.trials == by_sql.trials
    assert by_server.tags == by_sql.tags
    assert by_server.as_json() | {"mlflow": None} == by_sql.as_json() | {"mlflow": None}
    check_values_that_are_no_numbers(server.uri)


def test_deleted_runs_are_left_out(uri: str) -> None:
    from mlflow import MlflowClient

    record_small_sweep(uri)
    MlflowClient(uri).delete_run(load_sweep(uri, "digits-1").mlflow.run_id)
    assert list_sweeps(uri) == []


def test_an_unknown_name_is_answered_with_the_nearest(uri: str) -> None:
    record_small_sweep(uri)
    with pytest.raises(UnknownName, match="did you mean digits-1"):
        load_sweep(uri, "digit-1")


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


def test_listing_the_default_store_imports_no_mlflow_and_is_quick(uri: str) -> None:
    record_small_sweep(uri)
    code = (
        "import sys, time; from sweeps.tracking.reader import list_sweeps, load_sweep; start = time.perf_counter()\n"
        f"assert list_sweeps({uri!r}); load_sweep({uri!r}, 'digits-1')\n"
        "heavy = {'mlflow', 'ray', 'torch', 'optuna', 'hydra', 'sqlalchemy', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert time.perf_counter() - start < 0.5"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_reading_while_a_writer_holds_the_database(uri: str, tmp_path: Path) -> None:
    record_small_sweep(uri)
    with sqlite3.connect(tmp_path / "mlflow.db") as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert len(list_sweeps(uri)) == 1


def test_reading_after_a_writer_was_killed_within_a_transaction(uri: str, tmp_path: Path) -> None:
    record_small_sweep(uri)
    code = (
        f"import os, signal, sqlite3; c = sqlite3.connect({str(tmp_path / 'mlflow.db')!r})\n"
        "c.execute('PRAGMA cache_size = 1'); c.execute('UPDATE tags SET value = value || hex(zeroblob(999))')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    assert (tmp_path / "mlflow.db-journal").exists()
    assert list_sweeps(uri)[0].status == "finished"


# --- a server that is away ---------------------------------------------------------------------------------------


def test_an_unreachable_server_is_named_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for uri in (f"http://127.0.0.1:{port}", f"postgresql://me:secret@127.0.0.1:{port}/mlflow"):
        for ask in (list_sweeps, open_recorder):
            started = time.monotonic()
            with pytest.raises(TrackingUnreachable, match=rf"tracking\.uri=.*:{port}.*refused") as caught:
                ask(uri)
            assert time.monotonic() - started < 6
            assert "secret" not in str(caught.value)


def test_limits_of_requests_are_of_one_thread_and_the_users_own_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_MAX_RETRIES, MLFLOW_HTTP_REQUEST_TIMEOUT

    from sweeps.tracking.client import _limit_requests_by_thread, request_limits

    _limit_requests_by_thread()
    for variable in ("MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"):
        monkeypatch.delenv(variable, raising=False)
    with request_limits(8), ThreadPoolExecutor(1) as other:
        assert (MLFLOW_HTTP_REQUEST_TIMEOUT.get(), MLFLOW_HTTP_REQUEST_MAX_RETRIES.get()) == ((5, 8), 0)
        assert other.submit(MLFLOW_HTTP_REQUEST_TIMEOUT.get).result() == 120
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
        assert MLFLOW_HTTP_REQUEST_TIMEOUT.get() == 77


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TrackingUnreachable, match=r"tracking\.uri=sqlite.*can be written"):
        open_recorder(f"sqlite:///{tmp_path}/file/mlflow.db")


@pytest.mark.slow
def test_a_server_that_dies_and_comes_back_loses_and_doubles_nothing(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = open_recorder(server.uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    for step in range(300):
        recorder.trials.log("0", step, {"eval/loss": float(step)})
        if step == 100:
            time.sleep(0.5)
            server.kill()
            recorder.trials.start("1", POINT, CONFIG, 1)
        if step == 150:
            time.sleep(1.5)
        recorder.trials.log("0" if step <= 100 else "1", step, {"other": 1.0})
    recorder.trials.end("0", "finished", 299, 1)
    server.start()
    assert not recorder.close("finished")
    sweep = load_sweep(server.uri, "digits-1")
    assert sweep.status == "finished"
    assert [trial.trial for trial in sweep.trials] == ["0", "1"]
    assert history(server.uri, sweep.trials[0].run_id, "eval/loss") == [(step, step) for step in range(300)]
    assert len(history(server.uri, sweep.trials[0].run_id, "other")) == 101
    assert len(history(server.uri, sweep.trials[1].run_id, "other")) == 199
    assert sum("fails" in message for message in caplog.messages) == 1
    assert sum("works again" in message for message in caplog.messages) == 1


@pytest.mark.slow
def test_a_server_that_hangs_holds_up_no_caller(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    recorder = open_recorder(server.uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    wait_until(lambda: load_sweep(server.uri, "digits-1").trials)
    server.signal(signal.SIGSTOP)
    times = []
    for step in range(2000):
        started = time.perf_counter()
        recorder.trials.log("0", step, {"eval/loss": 1.0, "train/loss": 2.0})
        recorder.update({"running": 1}, [("0", (1.0,), POINT)], {"wall_s": 1.0})
        times.append(time.perf_counter() - started)
        time.sleep(0.0005)
    assert statistics.quantiles(times, n=100)[-1] < 0.001
    started = time.monotonic()
    assert recorder.close("stopped", patience_s=3).points >= 1000
    assert time.monotonic() - started < 10
    server.signal(signal.SIGCONT)


# --- the small parts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [0.1, 1e-05, 3, -2, True, False, None, "adamw", "", "1", "true", "null", "NaN", '"q"', [1, "a"], {"a": 1}]
)
def test_a_parameter_comes_back_with_its_type(value: Any) -> None:
    back = from_text(to_text(value))
    assert (back, type(back)) == (value, type(value))


def test_plain_strings_are_shown_plain() -> None:
    assert [to_text(value) for value in ("adamw", 0.001, 16, True)] == ["adamw", "0.001", "16", "true"]


def test_names_of_runs_tell_parameters_apart() -> None:
    point = {"model.lora.r": 16, "train.lr": 0.00213, "a.rate": 1, "b.rate": 2, "e.f": 5}
    assert run_name("3", point) == "003 r=16 lr=0.00213 a.rate=1 b.rate=2"


@pytest.mark.parametrize(
    ("name", "plain"),
    [("eval/loss", "eval/loss"), ("a//b", "a/b"), ("/a", "a"), ("../a", "a"), ("f1@5", "f1_5"), ("%", "_")],
)
def test_metrics_get_names_that_mlflow_takes(name: str, plain: str) -> None:
    assert metric_name(name) == plain


def test_a_step_is_new_once() -> None:
    steps = StepSet()
    assert [steps.add(step) for step in (0, 5, 0, 1023, 1024, 1023, 10**9, 10**9, -1, -1)] == [
        *(True, True, False, True, True, False, True, False, True, False)
    ]


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("sqlite:///mlflow.db", Path("mlflow.db")),
        ("sqlite:////srv/mlflow.db", Path("/srv/mlflow.db")),
        ("sqlite+pysqlite:///a%20b.db?timeout=5", Path("a b.db")),
        ("sqlite://", None),
        ("sqlite:///:memory:", None),
        ("http://localhost:5000", None),
        ("postgresql://me@db/mlflow", None),
    ],
)
def test_the_file_behind_a_uri(uri: str, path: Path | None) -> None:
    assert sqlite_path(uri) == path


def test_a_password_is_not_shown() -> None:
    assert redact_uri("postgresql://me:secret@db:5432/mlflow") == "postgresql://me:***@db:5432/mlflow"
    assert redact_uri("http://localhost:5000") == "http://localhost:5000"
