"""End of a sweep: checkpoints that are not to be kept are removed, and the result is read from MLflow."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient
from recording import CONFIG, POINT, held, open_recorder, record_with_checkpoints
from waiting import wait_until

from sweeps.driver import driver_progress
from sweeps.driver.finish import close_record, finish
from sweeps.errors import ResultUnreachable, SweepsError, TrackingUnreachable
from sweeps.plan.plan import make_plan
from sweeps.tracking.reader import load_sweep


def test_only_as_many_trials_as_wanted_keep_their_checkpoints(uri: str) -> None:
    plan = make_plan(["conf=digits", "checkpoint.trials=1", "tracking.report=false"], [], "digits-1", "")
    record_with_checkpoints(uri, "digits-1")
    assert all(kept == (True, True, True) for kept in held(uri, "digits-1").values())
    assert finish(plan).status == "finished"
    gone = (False, False, False)
    assert held(uri, "digits-1") == {"0000": gone, "0001": gone, "0002": (True, True, True), "0003": gone}


def test_a_sweep_whose_run_was_deleted_while_it_ran_says_how_to_get_it_back(uri: str) -> None:
    plan = make_plan(["conf=digits", "tracking.report=false"], [], "digits-1", "")
    record_with_checkpoints(uri, "digits-1")
    MlflowClient(uri).delete_run(load_sweep(uri, "digits-1").mlflow.run_id)
    message = "digits-1: has ended, and its run in MLflow was deleted meanwhile; restore it there, and"
    with pytest.raises(SweepsError, match=message) as raised:
        finish(plan)
    assert raised.value.exit_status == 1


def test_a_server_that_goes_away_after_the_whole_record_is_no_mistake_of_the_user() -> None:
    plan = make_plan(["conf=digits", "tracking.uri=http://127.0.0.1:9"], [], "digits-1", "")
    message = r"^digits-1: .*recorded, but tracking.uri=http://127.0.0.1:9 does not answer.*`python -m sweeps show digi"
    with pytest.raises(ResultUnreachable, match=message) as raised:
        finish(plan)
    assert raised.value.exit_status == 1
    assert isinstance(raised.value, TrackingUnreachable)  # a service waits for its MLflow, and resumes the sweep


def test_a_driver_gives_signs_of_life_while_its_last_checkpoint_is_copied(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(["conf=digits", "tracking.report=false"], [], "digits-1", "")
    flush, has_sign, progress = os.fsync, list[bool](), driver_progress._Driver
    monkeypatch.setattr(progress, "next_sign_by", 0.0)

    def fsync(file: int) -> None:
        if Path(f"/proc/self/fd/{file}").readlink().name == "model.bin":
            progress.next_sign_by = 0.0  # as after minutes
            wait_until(lambda: progress.next_sign_by > time.monotonic(), 10)
            has_sign.append(True)
        flush(file)

    monkeypatch.setattr(os, "fsync", fsync)
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    (tmp_path / "step-00000001").mkdir()
    (tmp_path / "step-00000001" / "model.bin").write_bytes(b"weights")
    recorder.trials.record_checkpoint("0", str(tmp_path / "step-00000001"), "best")
    close_record(plan, recorder, "finished")
    assert has_sign == [True]
