"""Checkpoints that are taken in memory and written while the training goes on, also after their workers were killed."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from checkpoints import assert_same
from fork_server import run_forked
from processes import process_with
from training_runs import IMAGES as SMALL_IMAGES
from training_runs import TEXT, Recorder, after_each_step, configured, on_two_workers, run, write_prompts
from waiting import wait_until

from sweeps_train.checkpoints import checkpoint, integrity, resumption, saver
from sweeps_train.checkpoints.checkpoint import newest_intact
from sweeps_train.checkpoints.integrity import find_damage
from sweeps_train.checkpoints.training_state import TENSORS_FILE
from sweeps_train.lanes import lane
from sweeps_train.memory import machine_memory
from sweeps_train.reports.progress import Progress
from sweeps_train.snapshots import connection, layout, snapshot
from sweeps_train.snapshots.connection import HolderConnection, holder_folder, mark_changed
from sweeps_train.snapshots.holder import FILES, SOCKET, WORKER, locked, write_files

pytestmark = pytest.mark.skipif(not connection.SHARED_MEMORY.is_dir(), reason="there is no shared memory")

EVERY_STEP = {"max_steps": 4, "eval_every": 1, "lr": 1e-3}
IN_MEMORY = {"background": True}
IMAGES = {**SMALL_IMAGES, "checkpoint": IN_MEMORY}


def count_overwritten(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record of each snapshot whether its model was overwritten in place, not written by a library again."""
    overwritten: list[bool] = []
    take = snapshot.Snapshot.take

    def recorded(self: Any, *arguments: Any) -> bool:
        is_laid_out = self._specs is not None
        taken = take(self, *arguments)
        overwritten.append(is_laid_out and self._overwrites_model)
        return taken

    monkeypatch.setattr(snapshot.Snapshot, "take", recorded)
    return overwritten


@pytest.mark.parametrize("base", ["images", "adapters", "whole model"])
def test_a_checkpoint_from_memory_is_that_which_is_written_at_once(
    base: str, working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_prompts(working_folder)
    adapters = {**TEXT, "checkpoint": IN_MEMORY}
    config = {
        "images": IMAGES,
        "adapters": adapters,
        "whole model": {**adapters, "model": {**TEXT["model"], "lora": None}},
    }
    overwritten = count_overwritten(monkeypatch)
    run(configured(config[base], train=EVERY_STEP), working_folder / "memory")
    assert overwritten == [False, True, True, True]
    run(configured(config[base], train=EVERY_STEP, checkpoint={"background": False}), working_folder / "direct")
    assert_same(working_folder / "memory" / "step-00000004", working_folder / "direct" / "step-00000004")
    assert not holder_folder(working_folder / "memory").exists()


def sharded_and_replicated() -> list[bool]:
    overwritten = []
    with pytest.MonkeyPatch.context() as patches:
        for kind in ("fsdp", "ddp"):
            for background in (True, False):
                found = count_overwritten(patches)
                folder = Path(f"{kind}-{background}")
                changes = {"train": EVERY_STEP, "strategy": {"kind": kind}, "checkpoint": {"background": background}}
                run(configured(IMAGES, **changes), folder)
                patches.undo()
                overwritten += found[1:]
    return overwritten


def test_two_workers_write_their_parts_of_the_same_files(tmp_path: Path) -> None:
    for overwritten in on_two_workers(sharded_and_replicated, tmp_path):
        assert overwritten == [True] * 6
    for kind in ("fsdp", "ddp"):
        assert_same(tmp_path / f"{kind}-True" / "step-00000004", tmp_path / f"{kind}-False" / "step-00000004")


def test_training_goes_on_while_a_checkpoint_is_written_and_the_next_one_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    write = HolderConnection.write

    def slow(self: HolderConnection, path: Path, *arguments: Any) -> Any:
        number = int(path.name.removeprefix("step-"))
        events.append(f"writes {number}")
        if number == 2:
            wait_until(lambda: "step 4" in events)
        state = write(self, path, *arguments)
        events.append(f"wrote {number}")
        return state

    def after_step(of: lane.Lane) -> None:
        events.append(f"step {of.progress.step}")
        if of.progress.step == 3:
            wait_until(lambda: "writes 2" in events)

    monkeypatch.setattr(HolderConnection, "write", slow)
    after_each_step(monkeypatch, after_step)
    recorder = run(configured(IMAGES, train={"max_steps": 6, "eval_every": 2}), tmp_path)
    assert events.index("writes 2") < events.index("step 4") < events.index("wrote 2") < events.index("writes 4")
    assert [step for step, *_ in recorder.checkpoints] == [2, 4]
    assert recorder.reports[-1][2] == str(tmp_path / "step-00000006")  # the last report waits for its checkpoint


def test_a_search_that_decides_on_a_report_has_its_checkpoint(tmp_path: Path) -> None:
    recorder = run(configured(IMAGES), tmp_path, waits_for_decision=True)
    assert [(step, Path(str(path)).name) for step, _, path, _ in recorder.reports] == [
        (4, "step-00000004"),
        (8, "step-00000008"),
    ]
    assert recorder.checkpoints == []


def test_a_checkpoint_that_cannot_be_written_fails_the_training(tmp_path: Path) -> None:
    (tmp_path / "step-00000004.unfinished").write_text("no folder")
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(resumption, "prepare_resume", lambda *_: None)
        with pytest.raises(OSError, match=r"step-00000004\.unfinished"):
            run(configured(IMAGES), tmp_path)
    assert newest_intact(tmp_path)[0] is None


def test_without_room_in_memory_checkpoints_are_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "LEFT_FREE", 1.0)
    recorder = run(configured(IMAGES), tmp_path)
    (note,) = recorder.notes
    assert "without a snapshot in memory: a snapshot needs " in note
    assert [Path(str(path)).name for _, _, path, _ in recorder.reports] == ["step-00000004", "step-00000008"]
    assert not holder_folder(tmp_path).exists()


def test_a_small_state_is_flushed_to_the_disk_without_a_holder_while_the_training_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saver, "HOLDER_S", 60.0)  # a busy machine may need longer than the usual limit
    taken = count_overwritten(monkeypatch)
    events: list[str] = []
    finish = checkpoint.finish

    def finish_slowly(folder: Path, path: Path, sums: Any) -> None:
        number = int(path.name.removeprefix("step-"))
        if number == 1:
            wait_until(lambda: "step 2" in events)
        finish(folder, path, sums)
        events.append(f"wrote {number}")

    monkeypatch.setattr(checkpoint, "finish", finish_slowly)
    after_each_step(monkeypatch, lambda of: events.append(f"step {of.progress.step}"))
    recorder = run(configured(SMALL_IMAGES, train=EVERY_STEP), tmp_path)
    assert events.index("step 2") < events.index("wrote 1") < events.index("wrote 2") < events.index("wrote 4")
    assert [step for step, *_ in recorder.checkpoints] == [1, 2, 3]
    assert recorder.reports[-1][2] == str(tmp_path / "step-00000004")  # the last report waits for its checkpoint
    assert taken == []


def test_a_small_state_that_cannot_be_flushed_to_the_disk_fails_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path, path: Path, sums: Any) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(checkpoint, "finish", fail)
    with pytest.raises(OSError, match="No space left on device"):
        run(configured(SMALL_IMAGES, train=EVERY_STEP), tmp_path)
    assert newest_intact(tmp_path)[0] is None


def test_a_training_whose_report_fails_after_a_small_save_ends_at_once_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saver, "HAND_OVER_WITHIN_S", 3600.0)
    before = threading.enumerate()

    def report(self: Recorder, progress: Progress, *others: Any) -> None:
        if progress.step == 2:
            raise ConnectionError("the broker has died")

    monkeypatch.setattr(Recorder, "report", report)
    with pytest.raises(ConnectionError, match="the broker has died"):
        run(configured(SMALL_IMAGES, train=EVERY_STEP), tmp_path)
    wait_until(lambda: not any(each.name == "checkpoint" for each in {*threading.enumerate()} - {*before}))


def without_room_from_the_third_save_on() -> None:
    """Fail if a worker waits for a snapshot that it has not handed over, since it was saved without one."""
    take, number = snapshot.Snapshot.take, itertools.count()
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(saver, "HAND_OVER_WITHIN_S", 3600.0)
        patches.setattr(snapshot.Snapshot, "take", lambda self, *given: next(number) < 2 and take(self, *given))
        run(configured(IMAGES, train=EVERY_STEP), Path("trained"))


def test_workers_end_at_once_after_saves_with_and_without_a_snapshot(tmp_path: Path) -> None:
    on_two_workers(without_room_from_the_third_save_on, tmp_path)
    assert find_damage(tmp_path / "trained" / "step-00000004") is None


def with_slow_saves() -> list[bool]:
    """Save at each step, each time for 0.2 seconds."""
    write = saver.write_checkpoint

    def write_slowly(*arguments: Any) -> Any:
        time.sleep(0.2)
        return write(*arguments)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(saver, "write_checkpoint", write_slowly)
        patches.setattr(saver, "HOLDER_S", 0.3)
        taken = count_overwritten(patches)
        run(configured(SMALL_IMAGES, train=EVERY_STEP), Path("slow"))
    return taken


def test_a_small_state_is_written_in_the_background_when_its_saves_have_cost_more_than_a_holder(tmp_path: Path) -> None:
    for taken in on_two_workers(with_slow_saves, tmp_path):
        assert len(taken) in (2, 3)  # after two saves; one, on a busy machine
        assert not taken[0]
        assert all(taken[1:])
    assert find_damage(tmp_path / "slow" / "step-00000004") is None


def test_a_snapshot_needs_room_in_the_memory_of_its_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "memory.max": 2**30,
        "memory.current": 2**30 - 2**20,
        "memory.stat": f"anon 5\ninactive_file {2**18}\nactive_file {2**18}\nfile 7",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(f"{content}\n")
    (tmp_path / "own").write_text("0::/\n")
    monkeypatch.setattr(machine_memory, "_OWN", tmp_path / "own")
    monkeypatch.setitem(machine_memory._VERSIONS, "", machine_memory._VERSIONS[""]._replace(root=str(tmp_path)))
    assert machine_memory.available_memory() == 2**20 + 2**19
    one_step = {"max_steps": 1, "global_batch_size": 20}
    (note,) = run(configured(IMAGES, model={"channels": 128}, train=one_step), tmp_path / "trained").notes
    said = re.search(r"without a snapshot in memory: a snapshot needs (\d+\.\d) MiB, and 1\.5 MiB are free", note)
    assert said is not None, note
    assert float(said[1]) > 1.5


# --- processes that end ---------------------------------------------------------------------------------------


def ended_with_its_parent(number: signal.Signals, folder: Path) -> None:
    """Train in a child of this process until both get a signal in its third step."""
    os.setsid()
    if os.fork():
        os.wait()
        return
    update = lane.Lane._update_weights

    def ended(self: lane.Lane) -> bool:
        if self.progress.step == 2:
            wait_until((folder / "step-00000002").exists)
            assert (holder_folder(folder) / FILES / TENSORS_FILE).exists()
            os.killpg(0, number)
        return update(self)

    lane.Lane._update_weights = ended  # type: ignore[method-assign] # in a process of its own
    run(configured(IMAGES, train={"max_steps": 4, "eval_every": 1}), folder)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="killed"),
        pytest.param(signal.SIGINT, id="interrupted", marks=pytest.mark.slow),
    ],
)
def test_no_shared_memory_is_left_when_all_are_gone(number: signal.Signals, tmp_path: Path) -> None:
    (status,) = run_forked([partial(ended_with_its_parent, number, tmp_path)])
    assert status == (-number if number == signal.SIGKILL else 1)
    wait_until(lambda: not holder_folder(tmp_path).exists())
    newest, damages = newest_intact(tmp_path)
    assert newest == tmp_path / "step-00000002"
    assert damages == []


def test_the_shared_memory_of_a_holder_that_was_killed_is_freed_by_the_next_one(tmp_path: Path) -> None:
    killed = HolderConnection.to_new(tmp_path / "killed")
    os.kill(process_with(str(killed.folder)), signal.SIGKILL)
    wait_until(lambda: not is_served(killed.folder))
    killed.close()
    os.utime(killed.folder, (0, 0))
    other = HolderConnection.to_new(tmp_path / "other")
    assert not killed.folder.exists()
    other.forget()
    assert not other.folder.exists()


def test_a_checkpoint_whose_holder_was_killed_is_written_by_the_worker(tmp_path: Path) -> None:
    held = HolderConnection.to_new(tmp_path / "held")
    held.files.mkdir()
    os.kill(process_with(str(held.folder)), signal.SIGKILL)
    wait_until(lambda: not is_served(held.folder))
    for step, content in enumerate((b"1234", b"5678"), start=1):
        os.utime(held.folder, (0, 0))
        HolderConnection.to_new(tmp_path / "other").forget()  # which removes what killed holders have left
        (held.files / "weights").write_bytes(content)
        state = held.write(tmp_path / f"step-{step:08}")
        assert state.is_stored
        assert (tmp_path / f"step-{step:08}" / "weights").read_bytes() == content
    assert newest_intact(tmp_path) == (tmp_path / "step-00000002", [])
    held.close()
    os.utime(held.folder, (0, 0))
    HolderConnection.to_new(tmp_path / "other").forget()
    assert not held.folder.exists()


@pytest.mark.slow
def test_a_training_whose_holder_is_killed_continues_and_has_the_same_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def after_step(of: lane.Lane) -> None:
        if of.progress.step == 3:
            os.kill(process_with(str(holder_folder(tmp_path / "memory"))), signal.SIGKILL)

    after_each_step(monkeypatch, after_step)
    run(configured(IMAGES, train=EVERY_STEP), tmp_path / "memory")
    monkeypatch.undo()
    run(configured(IMAGES, train=EVERY_STEP, checkpoint={"background": False}), tmp_path / "direct")
    assert_same(tmp_path / "memory" / "step-00000004", tmp_path / "direct" / "step-00000004")
    assert not holder_folder(tmp_path / "memory").exists()


def is_served(folder: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
        try:
            connected.connect(str(folder / SOCKET))
        except OSError:
            return False
    return True


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[HolderConnection]:
    """Connection of a second worker to a holder that has written a snapshot."""
    first = HolderConnection.to_new(tmp_path)
    first.files.mkdir()
    (first.files / "weights").write_bytes(b"1234")
    first.write(tmp_path / "step-00000001")
    second = HolderConnection.to_existing(tmp_path)
    assert second is not None
    yield second
    second.forget()
    first.close()


def test_a_snapshot_is_sealed_without_reading_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory" / FILES).mkdir(parents=True)
    (tmp_path / "memory" / FILES / "weights").write_bytes(b"1234")
    read: list[Path] = []

    def reading(file: Path) -> list[int]:
        read.append(file)
        return [0, 0]

    with monkeypatch.context() as patch:
        patch.setattr(integrity, "_size_and_checksum", reading)
        write_files(tmp_path / "memory" / FILES, tmp_path / "step-00000001")
    assert [each.name for each in read] == ["files.json"], "the seal itself"
    assert find_damage(tmp_path / "step-00000001") is None


def test_memory_is_read_only_if_the_storage_has_the_same(stored: HolderConnection, tmp_path: Path) -> None:
    assert stored.state.is_stored
    seal = tmp_path / "step-00000001" / "files.json"
    content = json.loads(seal.read_text())
    seal.write_text(json.dumps(content | {"weights": [4, 0]}))
    assert not stored.state.is_stored
    seal.unlink()
    assert not stored.state.is_stored


def test_a_training_that_cannot_begin_leaves_the_snapshot_to_others(tmp_path: Path) -> None:
    HolderConnection.to_new(tmp_path).close()
    with pytest.raises(ValueError, match="global_batch_size"):
        run(configured(IMAGES, train={"global_batch_size": 10_000}), tmp_path)
    lock = locked(holder_folder(tmp_path), WORKER)
    assert lock is not None
    os.close(lock)
    HolderConnection.to_new(tmp_path).forget()


def test_a_snapshot_that_is_being_changed_is_not_read(stored: HolderConnection, tmp_path: Path) -> None:
    mark_changed(stored.folder)
    third = HolderConnection.to_existing(tmp_path)
    assert third is not None
    assert third.state.written is None
    third.close()
