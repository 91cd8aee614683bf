"""A machine that has nothing but an object store reads the record of its sweeps from there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from composing import composed
from recording import COMMAND, CONFIG, LOSS, POINT
from stores import make_store

from sweeps.constants import COMPOSITION_ARTIFACT
from sweeps.storage.location import record_copy
from sweeps.storage.object_store import ObjectStore
from sweeps.storage.state_mirror import StateMirror
from sweeps.tracking import stored_record
from sweeps.tracking.client import connect
from sweeps.tracking.reader import list_sweeps, load_sweep
from sweeps.tracking.recorder import Recorder
from sweeps.tracking.stored_record import local_store, recorded_here
from sweeps.tracking.sweep_run import SweepInfo

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    return f"file://{tmp_path}/bucket/sweeps"


@pytest.fixture
def driver(bucket: str, uri: str, tmp_path: Path) -> Iterator[tuple[Recorder, StateMirror]]:
    """A running sweep with one trial, recorded in the store of its driver's machine."""
    recorder, mirror = start(bucket, uri, tmp_path / "driver", 0.5)
    record_copy(bucket).mkdir(parents=True)
    make_store(record_copy(bucket) / "mlflow.db")
    yield recorder, mirror
    mirror.close()


def start(bucket: str, uri: str, folder: Path, loss: float) -> tuple[Recorder, StateMirror]:
    folder.mkdir()
    store = ObjectStore(f"{bucket}/first")
    mirror = StateMirror(store, folder)
    mirror.start()
    store.write("driver.json", b"{}")  # the heartbeat
    info = SweepInfo(
        name="first",
        conf="digits",
        objectives=LOSS,
        folder=folder,
        config_yaml=CONFIG,
        command=COMMAND,
        uri=store.uri,
        copy=mirror.try_to_copy,
    )
    recorder = Recorder.open(uri, "digits", info)
    recorder.trials.start("0000", POINT, CONFIG, 1)
    recorder.trials.log("0000", 1, {"eval/loss": loss}, 1000)
    mirror.copy()
    return recorder, mirror


def test_a_sweep_that_was_removed_from_its_store_and_run_again_elsewhere_is_the_new_one(
    bucket: str, driver: tuple[Recorder, StateMirror], tmp_path: Path
) -> None:
    recorder, mirror = driver
    for step in range(2, 9):  # its journal is the longer one
        recorder.trials.log("0000", step, {"eval/loss": 0.5}, 1000 * step)
    assert not recorder.close("stopped")
    mirror.close()
    assert losses(bucket) == [0.5] * 8
    shutil.rmtree(tmp_path / "bucket" / "sweeps" / "first")
    make_store(tmp_path / "other.db")
    _, again = start(bucket, f"sqlite:///{tmp_path}/other.db", tmp_path / "again", 0.25)
    again.close()
    assert [losses(bucket), losses(bucket)] == [[0.25], [0.25]]


def losses(bucket: str) -> list[float]:
    """Reports of the only trial, as this machine reads them."""
    here = recorded_here(bucket)
    (trial,) = load_sweep(here, "first").trials
    return [point.value for point in connect(here).get_metric_history(trial.run_id, "eval/loss")]


def test_records_of_stores_at_different_addresses_are_kept_apart_without_their_secrets() -> None:
    here = record_copy("s3://bucket/sweeps?endpoint_override=here:9000&secret_key=s3cret")
    assert here != record_copy("s3://bucket/sweeps?endpoint_override=there:9000&secret_key=s3cret")
    assert "s3cret" not in str(here)


def test_a_sweep_is_read_from_its_store_while_it_runs_and_after_its_end_and_until_it_is_removed(
    bucket: str, uri: str, driver: tuple[Recorder, StateMirror], tmp_path: Path
) -> None:
    recorder, mirror = driver
    here = recorded_here(bucket)
    assert here != uri
    assert [(each.sweep, each.status) for each in list_sweeps(here)] == [("first", "running")]
    (trial,) = load_sweep(here, "first").trials
    assert (trial.trial, trial.state, trial.value) == ("0000", "running", 0.5)

    recorder.trials.log("0000", 2, {"eval/loss": 0.25}, 2000)
    recorder.trials.end("0000", "finished", 2, 1)
    recorder.trials.start("0001", POINT | {"train.lr": 0.5}, CONFIG, 1)
    recorder.trials.log("0001", 1, {"eval/loss": 0.75}, 1000)
    recorder.trials.end("0001", "pruned", 1, 1)
    assert not recorder.close("finished")
    mirror.copy()
    assert local_store(here) == here, "the store on this machine is brought up to date"
    there, original = load_sweep(here, "first"), load_sweep(uri, "first")
    assert there.status == "finished"
    assert [(t.trial, t.state, t.value, t.params) for t in there.trials] == [
        (t.trial, t.state, t.value, t.params) for t in original.trials
    ]
    client, run = connect(here), there.trials[0].run_id
    assert [point.value for point in client.get_metric_history(run, "eval/loss")] == [0.5, 0.25]
    assert [each.path for each in client.list_artifacts(run)] == ["config.yaml"]
    shutil.rmtree(tmp_path / "bucket" / "sweeps" / "first")
    assert list_sweeps(recorded_here(bucket)) == []


def copy_to(store: str, folder: Path) -> None:
    mirror = StateMirror(ObjectStore(store), folder)
    mirror.start()
    mirror.copy()
    mirror.close()


def test_the_ui_and_submit_read_the_store_too_and_so_does_the_driver_on_the_cluster(
    bucket: str,
    driver: tuple[Recorder, StateMirror],
    monkeypatch: pytest.MonkeyPatch,
    typed: Callable[..., tuple[int, str, str]],
) -> None:
    recorder, mirror = driver
    config = composed("digits", "cluster=ray", "cluster.address=http://head:8265", f"output_dir={bucket}")
    recorder.attach({COMPOSITION_ARTIFACT: json.dumps(config.as_json())}, {})
    assert not recorder.close("stopped")
    mirror.copy()
    monkeypatch.setattr(stored_record, "SCHEMES", ("file",))
    where = f"--tracking-uri={bucket}"
    assert "there is no sweep 'second'" in typed("ui", "second", where)[2]
    status, out, err = typed("submit", "--resume=first", "--to=ray", "--print", where)
    assert status == 0, err
    assert json.loads(out)["entrypoint"] == f"python -m sweeps resume first {where} --json"


def test_a_damaged_sweep_does_not_hide_the_others(
    bucket: str, driver: tuple[Recorder, StateMirror], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for damage in ("parts", "parent", "version"):
        folder = tmp_path / damage
        folder.mkdir()
        for name in ("tracking.jsonl", "parent.json"):
            shutil.copy(tmp_path / "driver" / name, folder)
        if damage == "parent":
            (folder / "parent.json").write_text("{}")
        elif damage == "version":
            with (folder / "tracking.jsonl").open("a") as journal:
                journal.write('{"kind": "Version", "version": 99, "written_by": "9.0"}\n')
        copy_to(f"{bucket}/{damage}", folder)
    for part in (tmp_path / "bucket/sweeps/parts/state").rglob("part-*"):
        part.write_bytes(b"damaged")
    assert [each.sweep for each in list_sweeps(recorded_here(bucket))] == ["first"]
    for damage in ("parts", "parent", "version"):
        assert sum(f"{damage} cannot be read" in message for message in caplog.messages) == 1


def test_a_sweep_whose_journal_has_lost_a_trials_beginning_is_read_without_that_trial(
    bucket: str, driver: tuple[Recorder, StateMirror], tmp_path: Path
) -> None:
    folder = tmp_path / "damaged"
    folder.mkdir()
    shutil.copy(tmp_path / "driver" / "parent.json", folder)
    lines = (tmp_path / "driver" / "tracking.jsonl").read_text().splitlines(keepends=True)
    (folder / "tracking.jsonl").write_text("".join(line for line in lines if '"NewRun"' not in line))
    shutil.rmtree(tmp_path / "bucket" / "sweeps" / "first")
    copy_to(f"{bucket}/first", folder)
    assert load_sweep(recorded_here(bucket), "first").trials == []


def test_a_text_is_stored_also_if_the_reader_is_killed_after_the_metrics(
    bucket: str, driver: tuple[Recorder, StateMirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(*args: object) -> None:
        raise Killed

    with monkeypatch.context() as killing:
        killing.setattr(stored_record, "storable", kill)  # of the first text
        with pytest.raises(Killed):
            recorded_here(bucket)
    here = recorded_here(bucket)
    (trial,) = load_sweep(here, "first").trials
    assert [each.path for each in connect(here).list_artifacts(trial.run_id)] == ["config.yaml"]


def test_nothing_is_delivered_that_the_store_does_not_have(
    bucket: str, uri: str, driver: tuple[Recorder, StateMirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, mirror = driver

    def unreachable(name: str, content: bytes) -> None:
        raise OSError("no route to host")

    store = mirror._store
    assert recorder._delivery.flush()
    with monkeypatch.context() as broken:
        broken.setattr(store, "write", unreachable)
        recorder.trials.end("0000", "finished", 1, 1)
        recorder.trials.log("0000", 7, {"eval/loss": 0.1}, 1000)
        assert recorder.close("interrupted", patience_s=0.5, total_s=0.5)
    assert {trial.state for trial in load_sweep(uri, "first").trials} == {"running"}
