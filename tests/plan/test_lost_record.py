"""`resume` of a sweep that its tracking store has lost, which is recorded again from the sweep's folder."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.artifacts import load_text
from recording import CONFIG, POINT, artifact_files, history, open_recorder, record_small_sweep
from stores import make_store

from sweeps.constants import TAG_COMMAND
from sweeps.errors import UnknownName, UserError
from sweeps.plan.lost_record import record_to_resume
from sweeps.plan.plan import make_plan
from sweeps.plan.resume import reopened
from sweeps.plan.saved_sweep import save
from sweeps.tracking.delivery import Remaining
from sweeps.tracking.held_checkpoints import hold
from sweeps.tracking.mlflow_characters import LONGEST_TAG
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.sweep_run import PARENT_FILE, create_again, write_parent


@pytest.fixture
def interrupted(uri: str) -> str:
    """The name of an interrupted sweep, with the files that its driver leaves."""
    plan = make_plan(["conf=digits"], [], "mine", "python -m sweeps run --name mine")
    plan.folder.mkdir(parents=True)
    save(plan)
    record_small_sweep(uri, "mine", status="interrupted")
    (plan.folder / "optuna.log").touch()
    return "mine"


@pytest.mark.parametrize("is_of_an_earlier_release", [False, True])
def test_a_lost_sweep_is_recorded_again_with_all_that_its_folder_has(
    uri: str, tmp_path: Path, *, is_of_an_earlier_release: bool
) -> None:
    record_small_sweep(uri, status="interrupted")
    before = load_sweep(uri, "digits-1")
    if is_of_an_earlier_release:
        (tmp_path / "outputs" / "digits-1" / PARENT_FILE).unlink()
    other = f"sqlite:///{tmp_path}/other.db"
    recorder = open_recorder(other, resume=True)
    recorder.update({}, [("0", (0.2,), POINT)], {"wall_s": 7.0})
    assert not recorder.close("interrupted")
    after = load_sweep(other, "digits-1")
    for trial, again in zip(before.trials, after.trials, strict=True):
        what = ("trial", "state", "value", "best_step", "params", "steps", "attempts", "started", "ended", "error")
        assert [getattr(again, each) for each in what] == [getattr(trial, each) for each in what]
        for metric in ("eval/loss", "train/loss", "best/eval/loss"):
            assert history(other, again.run_id, metric) == history(uri, trial.run_id, metric)
        artifacts = MlflowClient(other).get_run(again.run_id).info.artifact_uri
        assert load_text(f"{artifacts}/config.yaml") == CONFIG
    assert (after.status, after.best) == (before.status, after.trials[0])
    assert after.metrics == before.metrics
    if not is_of_an_earlier_release:
        assert (after.started, after.command) == (before.started, before.command)


def test_a_lost_sweep_of_an_earlier_release_is_recorded_again_with_a_command_that_every_database_takes(
    uri: str, tmp_path: Path
) -> None:
    client = MlflowClient(uri)
    write_parent(tmp_path, "digits", "digits-1", 1000, {TAG_COMMAND: "python -m sweeps run " + "x" * 9000})
    again = create_again(client, uri, (tmp_path / PARENT_FILE).read_bytes())
    assert len(client.get_run(again.run_id).data.tags[TAG_COMMAND]) == LONGEST_TAG


def test_a_driver_that_is_killed_while_it_records_a_lost_sweep_again_leaves_the_rest_to_the_next_one(
    uri: str, tmp_path: Path
) -> None:
    record_small_sweep(uri, status="interrupted")
    other = f"sqlite:///{tmp_path}/other.db"
    open_recorder(other, resume=True)._delivery.journal.close()  # as if it was killed now
    assert not open_recorder(other, resume=True).close("interrupted")
    assert [each.state for each in load_sweep(other, "digits-1").trials] == ["finished", "pruned", "failed", "stopped"]


def test_a_sweep_whose_store_was_removed_is_planned_from_its_folder(interrupted: str, uri: str, tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").unlink()
    record = record_to_resume(uri, interrupted)
    plan = reopened(record, {})
    assert (plan.name, plan.folder, plan.config.tracking.uri) == ("mine", tmp_path / "outputs" / "mine", uri)
    moved = shutil.move(plan.folder, tmp_path / "moved")
    with pytest.raises(UnknownName, match="there is no sweep 'mine'"):
        record_to_resume(uri, interrupted)
    assert reopened(record_to_resume(uri, interrupted, Path("moved")), {}, Path("moved")).folder == moved


@pytest.mark.parametrize("asked", ["sqlite:///mlflow.db", "sqlite:////{folder}/link/mlflow.db"])
def test_a_store_has_many_addresses(interrupted: str, tmp_path: Path, asked: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "mlflow.db").unlink()
    assert record_to_resume(asked.format(folder=tmp_path), interrupted).status == "interrupted"


def test_a_sweep_that_is_recorded_in_another_store_is_not_recorded_here_as_well(
    interrupted: str, tmp_path: Path
) -> None:
    make_store(tmp_path / "other.db")
    with pytest.raises(
        UserError, match=r"was recorded in sqlite:////.*/mlflow.db: name that store with --tracking-uri"
    ):
        record_to_resume(f"sqlite:///{tmp_path}/other.db", interrupted)


@pytest.mark.parametrize("deleted", ["run", "experiment"])
def test_a_sweep_that_a_person_has_deleted_in_mlflow_is_restored_there(
    interrupted: str, uri: str, deleted: str
) -> None:
    client, ids = MlflowClient(uri), load_sweep(uri, interrupted).mlflow
    if deleted == "run":
        client.delete_run(ids.run_id)
    else:
        client.delete_experiment(ids.experiment_id)
    with pytest.raises(UserError, match=rf"was deleted; restore it with `mlflow runs restore --run-id {ids.run_id}`"):
        record_to_resume(uri, interrupted)
    if deleted == "run":
        client.restore_run(ids.run_id)
    else:
        client.restore_experiment(ids.experiment_id)
    assert len(record_to_resume(uri, interrupted).trials) == 4


def test_a_sweep_that_was_deleted_for_good_can_be_recorded_again(interrupted: str, uri: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as store, store:  # as `mlflow gc` does
        for table in ("tags", "params", "metrics", "latest_metrics", "runs"):
            store.execute(f"DELETE FROM {table}")
    assert record_to_resume(uri, interrupted).status == "interrupted"


def test_a_folder_in_which_no_search_has_begun_is_no_lost_sweep(interrupted: str, uri: str, tmp_path: Path) -> None:
    (tmp_path / "outputs" / "mine" / "optuna.log").unlink()
    (tmp_path / "mlflow.db").unlink()
    with pytest.raises(UnknownName, match="there is no sweep 'mine'"):
        record_to_resume(uri, interrupted)


@pytest.mark.parametrize("restored", ["store", "folder"])
def test_what_a_restored_backup_of_the_store_lacks_is_recorded_again(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, restored: str
) -> None:
    counts, older, folder = {"finished": 1}, tmp_path / "older.db", tmp_path / "outputs" / "digits-1"
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    recorder.trials.log("0", 1, {"eval/loss": 0.3})
    assert recorder.trials.record_exploit("0", 1, 1, {"train.lr": 0.5})
    recorder.update(counts, [("0", (0.3,), POINT)], {"wall_s": 1.0})
    assert recorder._delivery.flush()
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as store, closing(sqlite3.connect(older)) as backup:
        store.backup(backup)
    shutil.copytree(folder, tmp_path / "older")
    recorder.trials.log("0", 2, {"eval/loss": 0.2})
    recorder.trials.end("0", "finished", 2, 1)
    recorder.trials.start("1", POINT, CONFIG, 1)
    recorder.trials.log("1", 1, {"eval/loss": 0.1})
    recorder.trials.end("1", "finished", 1, 1)
    recorder.update({"finished": 2}, [("1", (0.1,), POINT)], {"wall_s": 2.0})
    assert not recorder.close("interrupted")
    if restored == "folder":  # the store has more than the journal, and keeps it
        shutil.rmtree(folder)
        (tmp_path / "older").rename(folder)
    store_uri = f"sqlite:///{older}" if restored == "store" else uri
    caplog.clear()
    resumed = open_recorder(store_uri, resume=True)
    assert ("older record of digits-1" in caplog.text) == (restored == "store")
    assert resumed.trials.exploits("0") == 1
    assert resumed.close("interrupted") == Remaining(points=0, artifacts=0, entries=False)
    found = load_sweep(store_uri, "digits-1")
    assert [(each.trial, each.state, each.value) for each in found.trials] == [
        ("0", "finished", 0.2),
        ("1", "finished", 0.1),
    ]
    assert history(store_uri, found.trials[0].run_id, "eval/loss") == [(1, 0.3), (2, 0.2)]


@pytest.mark.parametrize("written", ["", "none", '{"wall_s": "long"}'])
def test_a_duration_that_a_person_has_edited_does_not_bring_back_what_was_deleted(uri: str, written: str) -> None:
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    recorder.trials.start("1", POINT, CONFIG, 1)
    recorder.update({"running": 2}, [], {"wall_s": 1.0})
    assert not recorder.close("interrupted")
    client, record = MlflowClient(uri), load_sweep(uri, "digits-1")
    client.set_tag(record.mlflow.run_id, "sweeps.time", written)
    client.delete_run(record.trials[0].run_id)
    assert not open_recorder(uri, resume=True).close("interrupted")
    assert [each.trial for each in load_sweep(uri, "digits-1").trials] == ["1"]


def test_a_lost_sweep_in_an_object_store_stays_there(interrupted: str, uri: str, tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").unlink()
    record = record_to_resume(uri, interrupted, tmp_path / "outputs" / "mine", "s3://bucket/sweeps/mine")
    assert record.tags["sweeps.folder"] == "s3://bucket/sweeps/mine"


@pytest.mark.parametrize("content", ["{}", "[]", "{"])
def test_a_damaged_file_of_the_sweeps_own_run_is_replaced_by_what_the_driver_knows(
    uri: str, tmp_path: Path, content: str
) -> None:
    record_small_sweep(uri, status="interrupted")
    (tmp_path / "outputs" / "digits-1" / PARENT_FILE).write_text(content)
    other = f"sqlite:///{tmp_path}/other.db"
    assert not open_recorder(other, resume=True).close("interrupted")
    assert len(load_sweep(other, "digits-1").trials) == 4


def test_no_tag_leads_to_a_checkpoint_that_is_lost_with_its_run(uri: str, tmp_path: Path) -> None:
    checkpoint = tmp_path / "outputs" / "digits-1" / "trials" / "0" / "step-00000010"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.bin").write_text("weights")
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    recorder.trials.record_checkpoint("0", str(checkpoint), "best", held=hold(str(checkpoint), str(checkpoint.parent)))
    recorder.trials.end("0", "finished", 10, 1)
    assert not recorder.close("interrupted")
    shutil.rmtree(checkpoint)
    other = f"sqlite:///{tmp_path}/other.db"
    assert not open_recorder(other, resume=True).close("interrupted")
    assert load_sweep(other, "digits-1").trials[0].checkpoint is None


@pytest.mark.parametrize("is_moved", [False, True])
@pytest.mark.parametrize("files", [".", "files"])
def test_checkpoints_of_a_lost_sweep_are_uploaded_again_from_its_folder(
    uri: str, tmp_path: Path, files: str, *, is_moved: bool
) -> None:
    trial = tmp_path / "outputs" / "digits-1" / "trials" / "0"
    checkpoint = trial / "step-00000010" / files
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.bin").write_text("weights")
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    recorder.trials.record_checkpoint("0", str(checkpoint), "best", held=hold(str(checkpoint), str(trial)))
    recorder.trials.end("0", "finished", 10, 1)
    assert not recorder.close("interrupted")
    other, folder = f"sqlite:///{tmp_path}/other.db", tmp_path / "outputs" / "digits-1"
    if is_moved:
        folder = folder.rename(tmp_path / "moved")
    for _ in range(2):  # and the next driver finds nothing to upload
        assert not open_recorder(other, folder=folder, resume=True).close("interrupted")
        (again,) = load_sweep(other, "digits-1").trials
        assert again.checkpoint == f"runs:/{again.run_id}/checkpoints/best"
        found = artifact_files(other, again.run_id, "checkpoints/best", tmp_path / "out")
        assert found == {"model.bin": "weights"}
