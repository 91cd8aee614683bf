"""Records for MLflow are on the disk first, and delivered exactly once, whatever dies meanwhile."""

from __future__ import annotations

import errno
import functools
import json
import math
import os
import random
import signal
import textwrap
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from fork_server import run_forked
from mlflow import MlflowClient
from recording import CONFIG, POINT, artifact_files, history, open_recorder, record_small_sweep

from sweeps import constants
from sweeps.errors import StorageFailed, UserError
from sweeps.tracking import outbox
from sweeps.tracking.journal import (
    JOURNAL_FILE,
    POSITION_FILE,
    Artifact,
    Entry,
    GoneBack,
    Journal,
    NewRun,
    Points,
    Status,
    Stored,
    Tags,
    is_delivered,
)
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.run_batch import by_run
from sweeps.tracking.store import fetch_runs
from sweeps.tracking.trial_history import Weights

ENTRIES: list[Entry] = [
    NewRun("0", "1", "000 lr=1", {"a": "b"}, {"train.lr": "1"}, 5, {"sweeps.trial": "0"}),
    Points("0", 10, 1000, {"eval/loss": 0.1, "train/loss": 1e-300}),
    GoneBack("0", 5),
    Tags("0", {"set": "ü\n", "deleted": None}),
    Status("0", "FINISHED", 2000),
    Artifact("0", "config.yaml", text="train:\r\n  lr: 1\n"),
    Artifact("0", "checkpoints/best", folder="/a/b"),
    Stored("0", "checkpoints/best", "/a/b"),
]


def killed_driver(uri: str, story: str, *, resume: bool = False) -> None:
    """Another process tells a recorder a story and is killed at its end, or within it."""
    driver = functools.partial(tell_and_die, uri, textwrap.dedent(story), Path.cwd(), resume=resume)
    assert run_forked([driver]) == [-signal.SIGKILL]


def tell_and_die(uri: str, story: str, folder: Path, *, resume: bool) -> None:
    os.chdir(folder)
    recorder = open_recorder(uri, resume=resume)
    exec(story, globals() | {"recorder": recorder})
    os.kill(os.getpid(), signal.SIGKILL)


def everything(uri: str) -> dict[str, Any]:
    """Contents of MLflow on the sweep, without times: by trial, with the sweep's own run under an empty name."""
    client, sweep = MlflowClient(uri), load_sweep(uri, "digits-1")
    runs = {"": sweep.mlflow.run_id} | {trial.trial: trial.run_id for trial in sweep.trials}
    told: dict[str, Any] = {}
    for key, run_id in runs.items():
        run = client.get_run(run_id)
        root = Path(run.info.artifact_uri)
        told[key] = {
            "run": run_id,
            "status": run.info.status,
            "params": run.data.params,
            "tags": {name: text for name, text in run.data.tags.items() if name != constants.TAG_HEARTBEAT},
            "metrics": {name: history(uri, run_id, name) for name in run.data.metrics},
            "artifacts": {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()},
        }
        told[key]["tags"].pop("mlflow.note.content", None)
    return told


# --- the file ----------------------------------------------------------------------------------------------------


def test_entries_come_back_as_they_were_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for entry in ENTRIES:
        journal.append(entry)
    assert list(journal.entries()) == ENTRIES
    read, start = [], 0
    while start < journal.end:
        some, start = journal.read(start, 40)  # less than one line
        read += some
    assert read == ENTRIES
    journal.close()


def test_half_a_line_of_a_killed_driver_is_no_entry(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(ENTRIES[0])
    journal.advance(journal.end)
    journal.close()
    with (tmp_path / JOURNAL_FILE).open("ab") as file:
        file.write(b'{"kind": "Points", "ke')
    journal = Journal(tmp_path)
    journal.append(ENTRIES[1])
    assert list(journal.entries()) == ENTRIES[:2]
    assert list(journal.entries(journal.position)) == ENTRIES[1:2]
    journal.close()
    journal = Journal(tmp_path)
    assert not journal.lost_lines
    journal.close()


@pytest.mark.parametrize("damage", [lambda line: line[:40], lambda line: b"X" * len(line)])
def test_a_line_that_lost_its_end_or_its_text_is_lost(
    damage: Callable[[bytes], bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(tmp_path)
    journal.append(*ENTRIES[:2])
    journal.close()
    file = tmp_path / JOURNAL_FILE
    *lines, first, second = file.read_bytes().splitlines()
    file.write_bytes(b"\n".join([*lines, damage(first), second, b""]))
    journal = Journal(tmp_path)
    assert journal.lost_lines == (len(lines) + 1,)
    assert list(journal.entries()) == ENTRIES[1:2]
    journal.close()
    assert "cannot be read" in caplog.text


def test_a_checkpoint_that_replaced_one_while_that_was_uploaded_is_not_delivered_with_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for folder in ("/step-10", "/step-20"):
        journal.append(Artifact("0", "checkpoints/best", folder=folder))
    journal.append(Stored("0", "checkpoints/best", "/step-10"))
    journal.advance(journal.end)
    assert not is_delivered(tmp_path)
    journal.append(Stored("0", "checkpoints/best", "/step-20"))
    journal.advance(journal.end)
    assert is_delivered(tmp_path)
    journal.close()


def test_a_text_that_replaced_one_while_that_was_uploaded_is_uploaded_by_the_next_driver(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = open_recorder(uri)
    delivery, replaced, uploader = recorder._delivery, threading.Event(), recorder._delivery._uploader
    upload = uploader._write_text

    def replace_meanwhile(run_id: str, name: str, text: str) -> None:
        upload(run_id, name, text)
        if text == "old":
            delivery.upload(Artifact("", "mine.txt", text="new"))
            replaced.set()

    monkeypatch.setattr(uploader, "_write_text", replace_meanwhile)
    delivery.upload(Artifact("", "mine.txt", text="old"))
    replaced.wait()
    recorder.close("finished")
    about = [each for each in Journal(Path("outputs/digits-1")).entries() if getattr(each, "name", "") == "mine.txt"]
    assert about == [*(Artifact("", "mine.txt", text=text) for text in ("old", "new")), Stored("", "mine.txt")]


@pytest.mark.parametrize("torn", [b"", b"1e9", b"99999999"])
def test_a_torn_position_means_that_all_is_delivered_again_or_nothing(tmp_path: Path, torn: bytes) -> None:
    journal = Journal(tmp_path)
    journal.append(ENTRIES[0])
    journal.close()
    (tmp_path / POSITION_FILE).write_bytes(torn)
    journal = Journal(tmp_path)
    assert journal.position in (0, journal.end)
    journal.close()


def test_a_full_disk_is_named_and_leaves_whole_lines(small_disk: Callable[[int], Path]) -> None:
    folder = small_disk(64)
    journal = Journal(folder)
    written = 0

    def fill() -> None:
        nonlocal written
        while True:
            journal.append(Points("0", written, 0, {"eval/loss": 1.0}))
            written += 1

    with pytest.raises(StorageFailed, match=rf"disk of {folder} is full.*resume disk-0"):
        fill()
    assert written > 100
    with pytest.raises(StorageFailed):
        journal.append(Tags("", {}))  # shorter: it may fit, but nothing may follow what did not
    journal.advance(0)  # there is no room for that either, and none is needed
    assert [entry.step for entry in journal.entries() if isinstance(entry, Points)] == list(range(written))
    journal.close()


def test_half_a_line_that_cannot_be_cut_off_is_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, write, room = Journal(tmp_path), os.write, [20]
    journal.append(ENTRIES[0])

    def fills_up(file: int, line: bytes) -> int:
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, line[: room.pop()])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", fills_up)
        patched.setattr(os, "ftruncate", Mock(side_effect=OSError(errno.EIO, os.strerror(errno.EIO))))
        with pytest.raises(StorageFailed, match="is full"):
            journal.append(ENTRIES[1])
    with pytest.raises(StorageFailed):
        journal.append(ENTRIES[2])
    journal.close()
    journal = Journal(tmp_path)
    assert list(journal.entries()) == ENTRIES[:1]
    journal.close()


# --- drivers that die --------------------------------------------------------------------------------------------


def test_what_a_killed_driver_had_not_delivered_comes_to_mlflow_when_the_sweep_goes_on(
    uri: str, tmp_path: Path
) -> None:
    best, newer = tmp_path / "best", tmp_path / "newer"
    for folder in (best, newer):
        folder.mkdir()
        (folder / "model.bin").write_text(folder.name)
    blocked = f"""
        import sqlite3
        blocker = sqlite3.connect({uri.removeprefix("sqlite:///")!r})
        blocker.execute("BEGIN IMMEDIATE")
        for trial, epochs in (("0", 3), ("1", 2)):
            recorder.trials.start(trial, POINT, CONFIG, 1)
            for epoch in range(epochs):
                recorder.trials.log(trial, epoch, {{"eval/loss": 1.0 - epoch, "train/loss": 1.0}}, 1000 + epoch)
            recorder.trials.record_checkpoint(trial, {str(best)!r}, "best")
        recorder.trials.record_exploit("0", 1, 1, {{"train.lr": 0.5, "train.optimizer": "sgd"}})
        recorder.trials.log("0", 2, {{"eval/loss": 7.0}}, 5000)
        recorder.trials.record_checkpoint("0", {str(newer)!r}, "best")
        recorder.trials.end("0", "finished", 2, 1)
        recorder.trials.end("1", "failed", 2, 1, "ValueError: no")
        recorder.update({{"finished": 1, "failed": 1}}, [("0", (-1.0,), POINT)], {{"wall_s": 77.0}})
    """
    killed_driver(uri, blocked)
    assert load_sweep(uri, "digits-1").trials == []
    recorder = open_recorder(uri, resume=True)
    assert recorder.earlier is not None
    first, second = recorder.earlier.trials  # MLflow may not have them yet
    assert [first.state, second.state, second.error] == ["finished", "failed", "ValueError: no"]
    for step in range(3):
        recorder.trials.log("1", step, {"eval/loss": 9.0})  # a retry repeats what was measured, and adds to it
    assert not recorder.close("finished")
    told = everything(uri)
    assert told["0"]["metrics"]["eval/loss"] == [(0, 1.0), (1, 0.0), (2, -1.0), (2, 7.0)]
    assert told["0"]["metrics"]["param/train.lr"] == [(1, 0.5)]
    assert told["0"]["tags"]["param/train.optimizer"] == "sgd"
    assert told["0"]["status"] == "FINISHED"
    assert told["0"]["params"] == {"train.lr": "0.0021", "model.lora.r": "16", "train.optimizer": "adamw"}
    assert told["1"]["metrics"]["eval/loss"] == [(0, 1.0), (1, 0.0), (2, 9.0)]
    assert told["0"]["artifacts"] == {"config.yaml": CONFIG, "checkpoints/best/model.bin": "newer"}
    assert told["1"]["artifacts"] == {"config.yaml": CONFIG, "checkpoints/best/model.bin": "best"}
    assert told[""]["tags"]["best.train.lr"] == "0.0021"
    assert json.loads(told[""]["tags"][constants.TAG_TIME])["wall_s"] == 77.0
    assert told[""]["artifacts"]["config.yaml"] == CONFIG


def test_a_resumed_driver_knows_from_the_journal_what_mlflow_shows(uri: str, tmp_path: Path) -> None:
    record_small_sweep(uri)
    weights = tmp_path / "step-3"
    weights.mkdir()
    (weights / "model.bin").write_text("weights")
    recorder = open_recorder(uri, resume=True)
    longer = POINT | {"model.path@main": "x" * 7000}
    recorder.trials.start("4", longer | {"seed": 7}, CONFIG, 1, repeat_of="0")
    recorder.trials.log("4", 3, {"eval/loss": math.nan, "recall@5": 0.5})
    recorder.trials.record_exploit("4", 1, 2, {"train.lr": 0.5, "train.optimizer": "sgd"})
    recorder.trials.record_checkpoint("4", str(weights), "best", "last", weights=Weights(3, (0.1,)))
    recorder.trials.end("4", "stopped", 3, 2, for_good=True)
    recorder.trials.start("3", POINT, CONFIG, 2)
    assert not recorder.close("interrupted")
    shown = load_sweep(uri, "digits-1")
    recorder = open_recorder(uri, resume=True)
    told = recorder.earlier
    assert told is not None
    assert told.status == shown.status == "interrupted"
    assert [replace(each, run_id="") for each in told.all_trials] == [replace(e, run_id="") for e in shown.all_trials]
    assert [each.run_id for each in told.all_trials] == [each.run_id for each in shown.all_trials]
    assert replace(told, tags={}) == replace(shown, tags={})
    assert recorder.earlier_metrics["0"] == {"eval/loss": 0.2, "train/loss": 1.0, "best/eval/loss": 0.2}
    recorder.close("interrupted")


def test_a_trial_whose_run_was_deleted_in_mlflow_is_not_known_to_a_resumed_driver(uri: str) -> None:
    record_small_sweep(uri)
    MlflowClient(uri).delete_run(load_sweep(uri, "digits-1").trials[1].run_id)
    recorder = open_recorder(uri, resume=True)
    assert recorder.earlier is not None
    assert [each.trial for each in recorder.earlier.trials] == ["0", "2", "3"]
    recorder.trials.start("1", POINT, CONFIG, 1)  # the search trains it again, in a run of its own
    recorder.trials.end("1", "finished", 5, 1)
    assert not recorder.close("finished")
    assert [each.state for each in load_sweep(uri, "digits-1").trials] == ["finished", "finished", "failed", "stopped"]


def test_what_was_measured_for_a_deleted_run_does_not_reach_the_one_that_replaces_it() -> None:
    entries = [
        Points("1", 10, 0, {"loss": 3.0}),
        NewRun("1", "7", "1", {}, {}, 0, {}),
        Points("1", 10, 5, {"loss": 2.0}),
    ]
    batches, waiting = by_run(entries, known={})
    assert [(each.step, each.value) for each in batches["1"].points] == [(10, 2.0)]
    assert waiting == 2
    batches, _ = by_run(entries, known={"1": "a run"})  # delivered once more
    assert [each.value for each in batches["1"].points] == [3.0, 2.0]


def test_delivering_everything_once_more_changes_nothing(uri: str) -> None:
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    for step in range(1, 120):
        recorder.trials.log("0", step, {"eval/loss": 1 / step, "odd": math.nan, "huge": math.inf}, 1000 + step)
    recorder.trials.record_exploit("0", 1, 60, {"train.lr": 0.25})
    for step in range(61, 90):
        recorder.trials.log("0", step, {"eval/loss": 1 / step}, 9000 + step)
    recorder.trials.end("0", "finished", 90, 1)
    recorder.update({"finished": 1}, [("0", (0.1,), POINT)], {"wall_s": 1.0})
    assert not recorder.close("finished")
    before = everything(uri)
    assert len(before["0"]["metrics"]["eval/loss"]) == 119 + 29

    Path("outputs/digits-1", POSITION_FILE).unlink()
    assert not open_recorder(uri, resume=True).close("finished")
    assert repr(everything(uri)) == repr(before)  # by text, as no NaN equals another
    assert len(fetch_runs(uri, {constants.TAG_SWEEP: "digits-1"})) == 2, "no run is there twice"


def test_after_a_trial_went_back_a_resumed_driver_knows_which_steps_are_new(uri: str) -> None:
    killed_driver(
        uri,
        """
        recorder.trials.start("0", POINT, CONFIG, 1)
        for step in range(1, 6):
            recorder.trials.log("0", step, {"eval/loss": 1.0}, step)
        recorder.trials.record_exploit("0", 1, 2, {"train.lr": 0.5})
        recorder.trials.log("0", 3, {"eval/loss": 2.0}, 10)
        assert recorder._delivery.flush()
        """,
    )
    recorder = open_recorder(uri, resume=True)
    for step, again in ((3, 0.1), (4, 3.0), (6, 0.5)):
        recorder.trials.log("0", step, {"eval/loss": again})
    assert not recorder.close("finished")
    trial = load_sweep(uri, "digits-1").trials[0]
    assert (trial.value, trial.best_step) == (0.5, 6), "what is left out does not count"
    loss = everything(uri)["0"]["metrics"]["eval/loss"]
    assert loss == [(1, 1.0), (2, 1.0), (3, 1.0), (3, 2.0), (4, 1.0), (4, 3.0), (5, 1.0), (6, 0.5)]


def test_both_values_of_a_trial_that_twice_continues_from_the_same_step_of_others_are_recorded_once(uri: str) -> None:
    killed_driver(
        uri,
        """
        recorder.trials.start("0", POINT, CONFIG, 1)
        recorder.trials.record_exploit("0", 1, 8, {"train.lr": 0.5})
        recorder.trials.record_exploit("0", 2, 8, {"train.lr": 0.25, "train.optimizer": "sgd"})
        assert recorder._delivery.flush()
        """,
    )
    recorder = open_recorder(uri, resume=True)
    recorder.trials.record_exploit("0", 2, 8, {"train.lr": 0.25, "train.optimizer": "sgd"})
    assert not recorder.close("interrupted")
    trial = everything(uri)["0"]
    assert sorted(trial["metrics"]["param/train.lr"]) == [(8, 0.25), (8, 0.5)]


def test_what_a_trial_measures_that_has_lost_the_state_it_took_over_is_recorded_beside_what_it_measured_before(
    uri: str,
) -> None:
    killed_driver(
        uri,
        """
        recorder.trials.start("0", POINT, CONFIG, 1)
        for step in (1, 2, 3):
            recorder.trials.log("0", step, {"eval/loss": 1.0}, step)
        recorder.trials.record_exploit("0", 1, 3, {"train.lr": 0.5})
        from sweeps.tracking.time_account import TimeAccount
        recorder.trials.log_account("0", 3, TimeAccount(training=1.0))
        recorder.trials.log("0", 4, {"eval/loss": 2.0}, 10)
        recorder.trials.log("0", 1, {"eval/loss": 3.0}, 11)
        assert recorder._delivery.flush()
        """,
    )
    recorder = open_recorder(uri, resume=True)
    for step in range(1, 6):
        recorder.trials.log("0", step, {"eval/loss": 4.0}, 12)
    assert not recorder.close("finished")
    loss = everything(uri)["0"]["metrics"]["eval/loss"]
    assert loss == [(1, 1.0), (1, 3.0), (2, 1.0), (2, 4.0), (3, 1.0), (3, 4.0), (4, 2.0), (5, 4.0)]


@pytest.mark.slow
def test_drivers_killed_while_they_write_leave_no_gap_and_no_double(uri: str) -> None:
    chance = random.Random(0)
    steps = 0
    for number in range(6):
        killed_driver(
            uri,
            f"""
            import threading, time
            recorder.trials.start("{number}", POINT, CONFIG, 1)
            if {number}: recorder.trials.start("0", POINT, CONFIG, {number + 1})
            threading.Timer({chance.uniform(0.3, 1.2)}, os.kill, (os.getpid(), signal.SIGKILL)).start()
            for step in range({max(0, steps - 50)}, 100_000):
                recorder.trials.log("0", step, {{"eval/loss": float(step), "train/loss": 2.0 * step}})
                if step % 100 == 0:
                    print(step, file=open("reached", "w"), flush=True)
                time.sleep(0.0005)
            """,
            resume=number > 0,
        )
        steps = int(Path("reached").read_text() or steps)
    recorder = open_recorder(uri, resume=True)
    recorder.trials.end("0", "finished", steps, 6)
    assert not recorder.close("finished")
    told = everything(uri)
    assert sorted(told) == ["", *map(str, range(6))]
    for name, factor in (("eval/loss", 1.0), ("train/loss", 2.0)):
        points = told["0"]["metrics"][name]
        assert len(points) > steps
        assert points == [(step, factor * step) for step in range(len(points))]
    assert all(run["params"] and run["artifacts"] for key, run in told.items() if key)


def test_the_run_of_a_best_trial_whose_name_alone_reached_mlflow_is_created_when_the_sweep_goes_on(uri: str) -> None:
    killed_driver(
        uri,
        f"""
        import sqlite3
        blocker = sqlite3.connect({uri.removeprefix("sqlite:///")!r})
        blocker.execute("BEGIN IMMEDIATE")
        recorder.trials.start("0", POINT, CONFIG, 1)
        recorder.trials.log("0", 1, {{"eval/loss": 0.5}})
        recorder.update({{"running": 1}}, [("0", (0.5,), POINT)], {{"wall_s": 1.0}})
        """,
    )
    killed_driver(
        uri,
        """
        from mlflow import MlflowClient
        MlflowClient.create_run = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
        recorder._delivery.flush()
        """,
        resume=True,
    )
    assert [trial.run_id for trial in load_sweep(uri, "digits-1").trials] == [""]
    recorder = open_recorder(uri, resume=True)
    recorder.trials.log("0", 2, {"eval/loss": 0.25})
    recorder.trials.end("0", "finished", 2, 1)
    assert not recorder.close("finished")
    told = everything(uri)
    assert told["0"]["metrics"]["eval/loss"] == [(1, 0.5), (2, 0.25)]
    assert told["0"]["artifacts"] == {"config.yaml": CONFIG}


def test_without_its_journal_a_sweep_does_not_go_on(uri: str) -> None:
    assert not open_recorder(uri).close("finished")
    Path("outputs/digits-1", JOURNAL_FILE).unlink()
    with pytest.raises(UserError, match=r"digits-1.*tracking\.jsonl is missing"):
        open_recorder(uri, resume=True)


def test_named_checkpoints_move_with_the_sweeps_folder(uri: str, working_folder: Path) -> None:
    recorder = open_recorder(uri, checkpoints="reference")
    folder = Path("outputs", "digits-1").absolute()
    for trial, place in (("0", folder / "trials" / "0" / "step-00000010"), ("1", Path("/far/away"))):
        recorder.trials.start(trial, POINT, CONFIG, 1)
        recorder.trials.record_checkpoint(trial, str(place), "best")
        recorder.trials.end(trial, "finished", 10, 1)
    recorder.close("interrupted")
    moved = working_folder / "elsewhere" / "digits-1"
    moved.parent.mkdir()
    folder.rename(moved)
    recorder = open_recorder(uri, folder=moved, checkpoints="reference", resume=True)
    recorder.close("finished")
    sweep = load_sweep(uri, "digits-1")
    assert sweep.tags["sweeps.folder"] == str(moved)
    assert [trial.checkpoint for trial in sweep.trials] == [
        (moved / "trials" / "0" / "step-00000010").as_uri(),
        "file:///far/away",
    ]


def test_a_checkpoint_that_was_not_copied_when_the_folder_moved_is_copied_from_there(
    uri: str, working_folder: Path
) -> None:
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    assert not recorder.close("interrupted")
    folder, moved = Path("outputs", "digits-1").absolute(), working_folder / "moved"
    checkpoint = folder / "trials" / "0" / "step-00000010"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.bin").write_bytes(b"model")
    journal = Journal(folder)
    journal.append(Artifact("0", "checkpoints/best", folder=str(checkpoint)))  # and the driver was killed
    journal.close()
    folder.rename(moved)
    recorder = open_recorder(uri, folder=moved, resume=True)
    assert not recorder.close("finished")
    trial = load_sweep(uri, "digits-1").trials[0]
    assert artifact_files(uri, trial.run_id, "checkpoints/best", working_folder) == {"model.bin": "model"}


def test_a_journal_that_cannot_be_read_is_a_failure_of_the_storage_and_takes_nothing_more(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(GoneBack("0", 5))
    file, journal._file = journal._file, os.open(tmp_path, os.O_RDONLY)  # what lies there is no file any more
    with pytest.raises(StorageFailed):
        journal.read(0, 1 << 20)
    os.close(journal._file)
    journal._file = file
    with pytest.raises(StorageFailed):
        journal.append(GoneBack("0", 6))
    journal.close()


@pytest.mark.parametrize("left", [0, 10])
def test_a_journal_that_is_cut_off_while_it_is_open_is_a_failure_of_the_storage(tmp_path: Path, left: int) -> None:
    journal = Journal(tmp_path)
    journal.append(GoneBack("0", 5))
    os.truncate(tmp_path / JOURNAL_FILE, left)
    with pytest.raises(StorageFailed, match="a part of what was written is gone"):
        [*journal.entries()]
    with pytest.raises(StorageFailed):
        journal.append(GoneBack("0", 6))
    journal.close()


def test_what_an_earlier_driver_of_this_process_writes_too_late_does_not_disturb_the_next_one(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a notebook in which a sweep is interrupted while MLflow hangs, and resumed at once."""
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    hangs, goes_on = threading.Event(), threading.Event()
    uploader = recorder._delivery._uploader
    upload = uploader._write_text

    def hang(*args: Any) -> None:
        hangs.set()
        goes_on.wait()
        upload(*args)

    monkeypatch.setattr(uploader, "_write_text", hang)
    recorder.trials.attach("0", "note.txt", "x")
    hangs.wait()
    late = uploader._thread
    assert recorder.close("interrupted", 0, 0)
    monkeypatch.undo()
    monkeypatch.setattr(outbox, "WRITE_EVERY_S", 0.01)
    resumed = open_recorder(uri, resume=True, folder=Path(uri.removeprefix("sqlite:///")).parent / "outputs/digits-1")
    goes_on.set()
    late.join()
    resumed.trials.start("0", POINT, CONFIG, 1)
    for step in range(20):
        resumed.trials.log("0", step, {"eval/loss": 1.0})
        assert resumed._delivery.flush()
        time.sleep(0.02)  # the thread looks for more
    resumed.trials.end("0", "finished", 20, 1)
    assert not resumed.close("finished")
    record = load_sweep(uri, "digits-1")
    assert (record.status, record.trials[0].state) == ("finished", "finished")
