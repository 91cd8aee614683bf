"""A trial in an object store always has a complete checkpoint there, from its first one on."""

from __future__ import annotations

import errno
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attempts import assignment
from killed_anywhere import all_kills

from sweeps.runtime import stored_trial
from sweeps.runtime.stored_trial import StoredTrial
from sweeps.storage.committed_folder import commit, committed
from sweeps.storage.object_store import ObjectStore
from sweeps_train.checkpoints.integrity import SEAL_FILE, find_damage, seal


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredTrial:
    monkeypatch.setenv("SWEEPS_CACHE", str(tmp_path / "cache"))
    node = SimpleNamespace(get_node_id=lambda: "a" * 56)
    monkeypatch.setattr(stored_trial.ray, "get_runtime_context", lambda: node)
    places = {"checkpoint_folder": f"file://{tmp_path}/store/trial", "log_folder": f"file://{tmp_path}/store/logs"}
    broker = SimpleNamespace(alive=lambda *_: None)  # told while uploads, or the import of torch, take long
    made = StoredTrial(replace(assignment("0000", 1), broker=broker, **places), rank=0)
    made.folder.mkdir(parents=True)
    return made


def save(trial: StoredTrial, step: int) -> Path:
    """Save a checkpoint as a training does."""
    folder = trial.folder / f"step-{step:08d}"
    folder.mkdir()
    (folder / "weights").write_text(f"weights of step {step}")
    seal(folder)
    return folder


def reseal(folder: Path) -> None:
    (folder / SEAL_FILE).unlink()
    seal(folder)


def announced(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a store that is an operation on files for ``all_kills``."""

    def announcing(*arguments: Any) -> Any:
        sys.audit("os.rename", *arguments)
        return method(*arguments)

    return announcing


def stored(trial: StoredTrial) -> list[int]:
    """Steps of the complete checkpoints in the store."""
    names = committed(ObjectStore(trial._assignment.checkpoint_folder).names())
    return [int(name.removeprefix("step-")) for name in names]


def restore(trial: StoredTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore as the first worker of a node."""
    store = ObjectStore(trial._assignment.checkpoint_folder)
    monkeypatch.setattr("ray.train.get_context", lambda: SimpleNamespace(get_local_rank=lambda: 0))
    monkeypatch.setattr("ray.train.collective.barrier", lambda: None)
    monkeypatch.setattr(
        "ray.train.collective.broadcast_from_rank_zero",
        lambda value: value if trial._rank == 0 else committed(store.names()),
    )
    trial.restore()


def test_a_checkpoint_stays_in_the_store_until_the_one_that_replaces_it_is_there(
    trial: StoredTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training saves faster than the store takes it: with each upload that ends, three others are replaced here."""
    at_begin: list[list[int]] = []

    def slow_commit(store: ObjectStore, folder: Path) -> None:
        at_begin.append(stored(trial))
        newest = 3 * len(at_begin) - 2
        if newest < 13:
            for step in range(newest + 1, newest + 4):
                saved = save(trial, step)
                shutil.rmtree(trial.folder / f"step-{step - 1:08d}")
                trial.save(saved, lambda uri: None)
        commit(store, folder)

    monkeypatch.setattr(stored_trial, "commit", slow_commit)
    trial.save(save(trial, 1), lambda uri: None)
    trial.wait()
    assert len(at_begin) > 3
    assert at_begin[0] == []
    assert all(at_begin[1:]), at_begin
    assert max(map(len, at_begin)) <= 3, "those that are replaced do not pile up"
    assert stored(trial) == [13], "in the end it is as in the trial's own folder"


def test_checkpoints_reach_the_store_from_a_file_system_without_links(
    trial: StoredTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", source)

    monkeypatch.setattr("os.link", refuse)
    announced: list[str] = []
    trial.save(save(trial, 1), announced.append)
    trial.wait()
    removed = save(trial, 2)
    shutil.rmtree(removed)
    trial.save(removed, announced.append)
    trial.wait()
    assert stored(trial) == [1]
    assert [uri.rpartition("/")[2] for uri in announced] == ["step-00000001"]


def test_a_checkpoint_that_was_damaged_is_replaced_in_the_store_when_its_step_is_trained_again(
    trial: StoredTrial,
) -> None:
    commit(ObjectStore(trial._assignment.checkpoint_folder) / "step-00000001", damaged := save(trial, 1))
    trial.steps = {damaged.name}  # as after `restore`
    shutil.rmtree(damaged)  # the training set it aside
    again = save(trial, 1)
    (again / "weights").write_text("trained again")
    seal(again)
    trial.save(again, lambda uri: None)
    trial.wait()
    store = Path(trial._assignment.checkpoint_folder.removeprefix("file://"))
    assert (store / again.name / "weights").read_text() == "trained again"


def test_a_checkpoint_stays_in_the_store_when_its_worker_is_killed_while_another_one_of_its_step_takes_its_place(
    trial: StoredTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, contents = Path(trial._assignment.checkpoint_folder.removeprefix("file://")), set[str]()
    for name in ("upload", "write", "remove", "remove_all"):  # Arrow's own operations on files cannot be seen
        monkeypatch.setattr(ObjectStore, name, announced(getattr(ObjectStore, name)))

    def prepare() -> None:
        for folder in (store, trial.folder):
            shutil.rmtree(folder, ignore_errors=True)
        trial.folder.mkdir()
        commit(ObjectStore(trial._assignment.checkpoint_folder) / "step-00000001", save(trial, 1))
        trial.steps = {"step-00000001"}
        (trial.folder / "step-00000001" / "weights").write_text("another one")
        reseal(trial.folder / "step-00000001")

    def replace() -> None:
        trial._upload(trial.folder / "step-00000001", lambda uri: None)

    for number in all_kills(replace, prepare):
        restore(trial, monkeypatch)
        assert stored(trial) == [1], f"killed before operation {number}"
        assert find_damage(trial.folder / "step-00000001") is None
        contents.add((trial.folder / "step-00000001" / "weights").read_text())
        trial._withdraw_superseded()  # as with the next checkpoint, and at the end
        assert {path.name for path in store.iterdir()} == {"step-00000001"}
    assert contents == {"weights of step 1", "another one"}


def test_checkpoints_that_the_node_of_a_killed_attempt_still_has_are_not_brought_again(
    trial: StoredTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ObjectStore(trial._assignment.checkpoint_folder)
    for step in (2, 4, 6):
        folder = save(trial, step)
        if step < 6:
            commit(store / folder.name, folder)
    (trial.folder / "step-00000002" / "weights").write_text("")
    (trial.folder / "step-00000008.unfinished").mkdir()
    brought: list[str] = []
    bring = stored_trial.fetch

    def counted(store: ObjectStore, folder: Path) -> None:
        brought.append(folder.name)
        bring(store, folder)

    monkeypatch.setattr(stored_trial, "fetch", counted)
    restore(trial, monkeypatch)
    assert brought == ["step-00000002"], "it is cut off"
    assert sorted(path.name for path in trial.folder.iterdir()) == ["step-00000002", "step-00000004"]
    assert (trial.folder / "step-00000002" / "weights").read_text() == "weights of step 2"


def test_files_of_an_upload_that_was_cut_off_are_removed_though_their_step_is_not_uploaded_again(
    trial: StoredTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ObjectStore(trial._assignment.checkpoint_folder)
    commit(store / "step-00000001", save(trial, 1))
    (store / "step-00000002").write("weights", b"cut off")
    (store / "pinned" / "step-00000002").write("weights", b"of another")
    restore(trial, monkeypatch)
    superseded = save(trial, 2)
    shutil.rmtree(superseded)
    trial.save(superseded, lambda uri: None)
    trial.save(save(trial, 3), lambda uri: None)
    trial.wait()
    assert {name.rpartition("/")[0] for name in store.names()} == {
        *("step-00000001", "step-00000003", "pinned/step-00000002")
    }


def test_files_of_a_checkpoint_that_the_training_removed_during_its_upload_are_removed(
    trial: StoredTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, removed = ObjectStore(trial._assignment.checkpoint_folder), save(trial, 1)

    def cut_off(place: ObjectStore, folder: Path) -> None:
        if folder == removed:
            place.write("weights", b"cut off")
            shutil.rmtree(removed)
            raise FileNotFoundError(removed)
        commit(place, folder)

    monkeypatch.setattr(stored_trial, "hold", lambda *_: None)  # a file system without links
    monkeypatch.setattr(stored_trial, "commit", cut_off)
    monkeypatch.setattr(stored_trial, "AGAIN_AFTER_S", 0.0)
    for saved in (removed, save(trial, 2)):
        trial.save(saved, lambda uri: None)
    trial.wait()
    assert {name.partition("/")[0] for name in store.names()} == {"step-00000002"}


def test_a_node_without_the_main_worker_keeps_no_checkpoints_after_the_trial(
    trial: StoredTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = save(trial, 2)
    commit(ObjectStore(trial._assignment.checkpoint_folder) / saved.name, saved)
    other = StoredTrial(trial._assignment, rank=1)
    restore(other, monkeypatch)
    assert saved.is_dir()
    other.close(failed=False)
    assert not other.folder.exists()
    assert stored(trial) == [2]


def refuse(monkeypatch: pytest.MonkeyPatch, name: str, *errors: Exception) -> list[Exception]:
    """Let a function for the store fail with these errors first; returns those that are still to come."""
    function, left = getattr(stored_trial, name), [*errors]

    def refusing(*arguments: Any) -> None:
        if left:
            raise left.pop(0)
        function(*arguments)

    monkeypatch.setattr(stored_trial, name, refusing)
    return left


def test_a_removal_that_the_store_refuses_is_repeated_with_the_next_checkpoint(
    trial: StoredTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = refuse(monkeypatch, "withdraw", OSError("503: slow down"))
    for step in (1, 2, 3, 4):
        trial.save(save(trial, step), lambda uri: None)
        trial.wait()
        shutil.rmtree(trial.folder / f"step-{step - 1:08d}", ignore_errors=True)
    assert not left
    assert stored(trial) == [3, 4]


def test_an_upload_is_tried_again_after_an_error_of_the_store(
    trial: StoredTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = refuse(monkeypatch, "commit", OSError("503 Server Busy"))
    monkeypatch.setattr(stored_trial, "AGAIN_AFTER_S", 0.0)
    trial.save(save(trial, 1), lambda uri: None)
    trial.wait()
    assert not left
    assert stored(trial) == [1]


def test_the_last_error_of_an_upload_reaches_the_training(trial: StoredTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "commit", RuntimeError("503 Server Busy"))
    monkeypatch.setattr(stored_trial, "UPLOADED_WITHIN_S", 0.0)
    trial.save(save(trial, 1), lambda uri: None)
    with pytest.raises(RuntimeError, match="503 Server Busy"):
        trial.wait()
    with pytest.raises(RuntimeError, match="503 Server Busy"):
        trial.save(save(trial, 2), lambda uri: None)
