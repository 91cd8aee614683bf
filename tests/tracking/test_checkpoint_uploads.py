"""Checkpoints in MLflow: copied, replaced, only named, or gone before they were copied."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from recording import CONFIG, POINT, artifact_files, one_trial, open_recorder
from stores import make_store
from waiting import wait_until

from sweeps.tracking import artifact_uploader
from sweeps.tracking.artifact_uploader import CheckpointKind
from sweeps.tracking.held_checkpoints import hold
from sweeps.tracking.journal import is_delivered
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.uris import sqlite_path


def make_checkpoint(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{folder.name}/{name}")
    return folder


def copied(uri: str, target: Path) -> dict[str, str]:
    """Files of the only trial's checkpoint in MLflow, of the kind that the target is named for."""
    trial = load_sweep(uri, "digits-1").trials[0]
    return artifact_files(uri, trial.run_id, f"checkpoints/{target.name}", target)


def test_a_checkpoint_that_was_removed_meanwhile_is_warned_of_once(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_uploader, "UPLOAD_AFTER_S", 0.0)
    with one_trial(uri) as recorder:
        uploader = recorder._delivery._uploader
        for number in range(3):
            recorder.trials.record_checkpoint("0", str(tmp_path / f"gone{number}"), "last")
            wait_until(lambda: not uploader._queue and uploader._busy is None)
    assert sum("gone" in message for message in caplog.messages) == 1
    assert load_sweep(uri, "digits-1").trials[0].checkpoint is None


def test_a_reported_checkpoint_is_copied_also_when_the_training_has_removed_it(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with one_trial(uri) as recorder:
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
    for kind, step in (("last", 3), ("best", 2)):
        assert copied(uri, tmp_path / kind) == {"model.bin": f"step-{step:08}/model.bin"}
    assert not (root / "uploads").exists()
    assert (root / "step-00000004").is_dir()
    assert not caplog.messages


def test_a_checkpoint_that_cannot_be_copied_does_not_keep_the_others_out(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_uploader, "TURN_S", 0.2)
    monkeypatch.setattr(artifact_uploader, "UPLOAD_AFTER_S", 0.2)
    recorder = open_recorder(uri)
    for trial in ("0", "1", "2"):
        recorder.trials.start(trial, POINT, CONFIG, 1)
        checkpoint = make_checkpoint(tmp_path / trial / "step-00000001", "model.bin")
        if trial == "0":
            (checkpoint / "mine").symlink_to("/proc/self/mem")  # reading it fails, as on a bad disk
        recorder.trials.record_checkpoint(trial, str(checkpoint), "best")
    uploaded = [False, True, True]
    wait_until(lambda: [trial.checkpoint is not None for trial in load_sweep(uri, "digits-1").trials] == uploaded)
    assert recorder.close("finished", patience_s=1).artifacts == 1


@pytest.mark.parametrize(("number", "tries"), [(errno.EINVAL, 1), (errno.EIO, 2)])
def test_a_copy_whose_name_did_not_reach_the_disk_is_repeated_unless_the_file_system_cannot_tell(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, tries: int
) -> None:
    flush, flushed = os.fsync, list[str]()

    def fsync(file: int) -> None:
        name = Path(f"/proc/self/fd/{file}").readlink().name
        flushed.append(name)
        if name == "checkpoints" and flushed.count(name) == 1:
            raise OSError(number, os.strerror(number))
        flush(file)

    monkeypatch.setattr(os, "fsync", fsync)
    with one_trial(uri) as recorder:
        recorder.trials.record_checkpoint("0", str(make_checkpoint(tmp_path / "step-00000001", "model.bin")), "best")
    assert flushed.count("checkpoints") == tries
    assert load_sweep(uri, "digits-1").trials[0].checkpoint is not None


def test_a_large_checkpoint_is_waited_for_longer_than_a_store_that_does_not_answer(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush, recorder = os.fsync, open_recorder(uri)
    retrier, left = recorder._delivery.upload_retrier, list[float]()

    def fsync(file: int) -> None:
        if Path(f"/proc/self/fd/{file}").readlink().name.startswith("model-"):
            retrier._last_success -= 50  # as if each file took that many seconds
            left.append(retrier.time_left())
        flush(file)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(artifact_uploader, "SLOWEST_STORE", 0.5)
    recorder.trials.start("0", POINT, CONFIG, 1)
    checkpoint = make_checkpoint(tmp_path / "step-00000001", "model-1", "model-2", "model-3")
    recorder.trials.record_checkpoint("0", str(checkpoint), "best")
    assert not recorder.close("finished", patience_s=60)
    assert [each > 0 for each in left] == [True] * 3
    assert load_sweep(uri, "digits-1").trials[0].checkpoint is not None


@pytest.mark.parametrize("special", ["pipe", "link"])
def test_a_checkpoint_with_a_pipe_or_a_dangling_link_is_refused_once_and_an_earlier_one_is_not_taken_for_it(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, special: str
) -> None:
    monkeypatch.setattr(artifact_uploader, "UPLOAD_AFTER_S", 0.0)
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    recorder.trials.record_checkpoint("0", str(make_checkpoint(tmp_path / "step-00000001", "model.bin")), "best")
    wait_until(lambda: any(trial.checkpoint is not None for trial in load_sweep(uri, "digits-1").trials))
    checkpoint = make_checkpoint(tmp_path / "step-00000002", "model.bin")
    if special == "pipe":
        os.mkfifo(checkpoint / "mine")
    else:
        (checkpoint / "mine").symlink_to("gone")
    held = hold(str(checkpoint), str(tmp_path / "trial"))
    recorder.trials.record_checkpoint("0", str(checkpoint), "best", held=held)
    assert not recorder.close("finished", patience_s=20)
    assert is_delivered(Path("outputs", "digits-1"))
    assert load_sweep(uri, "digits-1").trials[0].checkpoint is None
    assert sum("mine is neither a file nor a folder" in message for message in caplog.messages) == 1


@pytest.mark.parametrize("name", ["loss#1.pt", "what?.pt", "a%20b/model.pt"])
def test_a_server_gets_no_file_that_it_would_store_under_another_name(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from mlflow import MlflowClient

    monkeypatch.setattr(artifact_uploader, "TURN_S", 0.1)
    monkeypatch.setattr(artifact_uploader, "UPLOAD_AFTER_S", 0.0)
    make_store(sqlite_path(uri))
    MlflowClient(uri).create_experiment("digits", "mlflow-artifacts://127.0.0.1:1/digits")  # answers no upload
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    recorder.trials.record_checkpoint("0", str(make_checkpoint(tmp_path / "step-00000001", name)), "best")
    refused = (
        f"best of trial 0 cannot be copied to MLflow: the server would store the file {name.partition('/')[0]} under"
    )
    wait_until(lambda: any(refused in message for message in caplog.messages))
    recorder.close("finished", patience_s=0.1)
    assert load_sweep(uri, "digits-1").trials[0].checkpoint is None


def test_a_checkpoint_with_a_link_to_an_earlier_one_is_copied_whole(uri: str, tmp_path: Path) -> None:
    with one_trial(uri) as recorder:
        root = tmp_path / "trial"
        make_checkpoint(root / "step-00000001", "vocabulary")
        checkpoint = make_checkpoint(root / "step-00000002", "model.bin")
        (checkpoint / "vocabulary").symlink_to("../step-00000001/vocabulary")
        held = hold(str(checkpoint), str(root))
        shutil.rmtree(root / "step-00000001")
        shutil.rmtree(checkpoint)
        recorder.trials.record_checkpoint("0", str(checkpoint), "last", held=held)
    files = {"model.bin": "step-00000002/model.bin", "vocabulary": "step-00000001/vocabulary"}
    assert copied(uri, tmp_path / "last") == files


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
    assert copied(uri, tmp_path / "last") == {"model.bin": "c2/model.bin"}
    assert not caplog.messages


@pytest.mark.parametrize(("how", "expected"), [("reference", "file:///far/away"), ("none", None)])
def test_checkpoints_can_be_only_named_or_left_out(uri: str, how: str, expected: str | None) -> None:
    with one_trial(uri, checkpoints=how) as recorder:
        recorder.trials.record_checkpoint("0", "/far/away", "best")
    assert load_sweep(uri, "digits-1").trials[0].checkpoint == expected
