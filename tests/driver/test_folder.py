"""The one process that runs a sweep: others are refused, on this machine and on others that share its folder."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from processes import outputs
from recording import open_recorder
from running import NO_PREFLIGHT, SHORT, ended, run, start
from waiting import wait_until

from sweeps.constants import NUMBER, ORIGIN_PREFIX, TAG_HEARTBEAT
from sweeps.driver.folder_access import bring_reports, held, make_folder
from sweeps.errors import UnknownName, UserError
from sweeps.folders import driver_lock as driver
from sweeps.folders.driver_lock import DRIVER_FILE, DRIVER_LOCK, driver_was_killed, is_held, only_driver
from sweeps.launch.slurm import BODY
from sweeps.operations.local import Local
from sweeps.plan.plan import make_plan
from sweeps.plan.resume import reopened
from sweeps.plan.saved_sweep import save, saved_config
from sweeps.search.study_file import open_study_storage
from sweeps.search.study_version import STUDY_FILE
from sweeps.storage.object_store import ObjectStore
from sweeps.tracking import client
from sweeps.tracking.journal import Tags
from sweeps.tracking.reader import list_sweeps, load_sweep

HOLD = """
import sys, time
from pathlib import Path
from sweeps.folders import driver_lock as folder
from sweeps.folders.driver_lock import only_driver
folder.BEAT_S, folder.SILENCE_S = 0.15, 1.2
with only_driver(Path(sys.argv[1]), "mine", machine=sys.argv[2] or None):
    print("holds", flush=True)
    time.sleep(60)
"""


def hold(folder: Path, machine: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(folder), machine]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "holds\n"
    return process


def blind(folder: Path) -> None:
    """As from another machine, on storage that does not pass on locks."""
    (folder / DRIVER_LOCK).unlink()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_driver_that_waits_for_another_one_continues_the_sweep_as_that_one_leaves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, "conf=digits", "search.num_trials=2", "--name=mine", *SHORT, NO_PREFLIGHT)
    folder = tmp_path / "outputs" / "mine"
    first = hold(folder)
    monkeypatch.setenv(driver.PATIENCE, "200")
    second = start(tmp_path, "extend", "mine", "search.num_trials=3")
    assert second.stderr is not None
    while "waiting up to 200 s" not in (line := second.stderr.readline()):
        assert line
    record = replace(load_sweep(f"sqlite:///{tmp_path}/mlflow.db", "mine"), status="interrupted")
    save(reopened(record, {"search.max_retries": 7}))
    first.kill()
    first.communicate()
    ended(tmp_path, second)
    search = saved_config("mine", str(folder)).search
    assert (search.num_trials, search.max_retries) == (3, 7)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = hold(tmp_path, "far/1")
    yield process
    process.kill()
    process.communicate()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "SILENCE_S", 1.5)  # ten times that of a heartbeat
    monkeypatch.setattr(driver, "BEAT_S", 0.15)


def test_a_second_driver_is_refused_at_once(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    with pytest.raises(UserError, match="mine is already run by another process"), only_driver(tmp_path, "mine"):
        pass


def test_a_sweep_that_is_starting_is_not_called_unknown(tmp_path: Path, uri: str) -> None:
    folder = tmp_path / "outputs" / "mine"
    folder.mkdir(parents=True)
    with (
        only_driver(folder, "mine"),
        pytest.raises(UnknownName, match=r"'mine'.*; its driver runs in outputs/mine: try again"),
    ):
        Local(uri).stop("mine", None)
    for name in ("mine", "m" * 300):
        with pytest.raises(UnknownName, match=f"there is no sweep '{name}' in [^;]*$"):
            Local(uri).stop(name, None)


def test_a_driver_sends_heartbeats_again_after_errors_of_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, errors = ObjectStore(f"file://{tmp_path}/store/mine"), [TimeoutError("503"), ConnectionError("reset")]
    with only_driver(tmp_path / "copy", "mine", store=store):
        with monkeypatch.context() as patched:
            write = ObjectStore.write

            def refuse(self: ObjectStore, name: str, content: bytes) -> None:
                if errors:
                    raise errors.pop(0)
                write(self, name, content)

            patched.setattr(ObjectStore, "write", refuse)
            wait_until(lambda: not errors)
        before = store.read(DRIVER_FILE)
        wait_until(lambda: store.read(DRIVER_FILE) != before)


def test_a_second_driver_on_another_machine_is_refused_by_signs_of_life(
    tmp_path: Path, other: subprocess.Popen[str]
) -> None:
    blind(tmp_path)
    with pytest.raises(UserError, match="process, on far;"), only_driver(tmp_path, "mine"):
        pass


def test_the_driver_of_a_job_that_was_put_back_into_the_queue_waits_for_the_end_of_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plan: Any = SimpleNamespace(folder=tmp_path, name="mine", store=None)
    monkeypatch.setenv(driver.PATIENCE, "120")
    other = hold(tmp_path)
    ending = threading.Timer(0.5, other.kill)
    ending.start()
    with held(plan):
        assert "mine is run by another process; waiting up to 120 s for its end" in caplog.text
        assert other.wait() == -signal.SIGKILL
    ending.join()
    other.communicate()
    assert f"export {driver.PATIENCE}=300 {client.PATIENCE}=3600" in BODY.read_text(encoding="utf-8")


def test_a_patience_that_is_no_number_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(driver.PATIENCE, "5m")
    plan: Any = SimpleNamespace(folder=tmp_path, name="mine", store=None)
    with (
        pytest.raises(UserError, match=f"^{driver.PATIENCE}=5m: must be a number of seconds, such as 300$"),
        held(plan),
    ):
        pass


def test_a_driver_with_patience_waits_for_one_on_another_machine(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    blind(tmp_path)
    ending = threading.Timer(driver.SILENCE_S + 1.0, other.kill)  # its heartbeat is seen before that
    ending.start()
    with only_driver(tmp_path, "mine", patience_s=120):
        assert other.wait() == -signal.SIGKILL
        assert json.loads((tmp_path / DRIVER_FILE).read_text())["machine"] != "far/1"
    ending.join()


def test_a_lost_machines_sweep_is_taken_over_after_a_silence(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    other.kill()
    other.wait()
    began = time.monotonic()
    with only_driver(tmp_path, "mine"):
        assert time.monotonic() - began >= driver.SILENCE_S
        assert json.loads((tmp_path / DRIVER_FILE).read_text())["machine"] != "far/1"
    assert not (tmp_path / DRIVER_FILE).exists()


def test_a_driver_whose_file_is_damaged_keeps_others_out_while_it_runs(tmp_path: Path) -> None:
    damaged = ["", "[1]", '{"id": "a"}', "\0" * 40, '{"id": "a", "mach']  # the last as a power cut leaves it
    for content in damaged:
        (tmp_path / DRIVER_FILE).write_text(content)
        last = driver._DriverFile(tmp_path).read()
        assert last is not None
        assert last["machine"] == "an unknown machine"
    (tmp_path / DRIVER_FILE).unlink()
    with only_driver(tmp_path, "mine", machine="far/1"):
        blind(tmp_path)
        (tmp_path / DRIVER_FILE).write_text(damaged[-1])
        with pytest.raises(UserError, match="process, on"), only_driver(tmp_path, "mine"):
            pass
    (tmp_path / DRIVER_FILE).write_text(damaged[-1])
    began = time.monotonic()
    with only_driver(tmp_path, "mine"):
        assert time.monotonic() - began >= driver.SILENCE_S


def test_who_was_killed_on_this_machine_is_known_to_be_dead_at_once_and_who_sleeps_there_to_be_alive(
    tmp_path: Path, uri: str
) -> None:
    recorder = open_recorder(uri, "mine", folder=tmp_path)
    recorder._delivery.put(Tags("", {TAG_HEARTBEAT: f"{time.time() - 61:.3f}"}))  # or its clock is behind
    wait_until(lambda: load_sweep(uri, "mine").status == "interrupted")
    assert not driver_was_killed(tmp_path)
    process = hold(tmp_path)
    process.send_signal(signal.SIGSTOP)
    assert not driver_was_killed(tmp_path)
    assert load_sweep(uri, "mine").status == list_sweeps(uri)[0].status == "running"
    process.kill()
    process.communicate()
    assert driver_was_killed(tmp_path)
    assert load_sweep(uri, "mine").status == "interrupted"
    began = time.monotonic()
    with only_driver(tmp_path, "mine"):
        assert time.monotonic() - began < 1
        assert load_sweep(uri, "mine").status == "interrupted"  # as `clean` and `resume`, which hold it, see it
    assert not driver_was_killed(tmp_path)
    recorder.close("stopped")


def test_many_may_ask_at_once_whether_a_folder_is_held_and_none_keeps_a_driver_out(tmp_path: Path) -> None:
    with only_driver(tmp_path, "mine"):
        assert is_held(tmp_path)
    with (tmp_path / DRIVER_LOCK).open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert not is_held(tmp_path)


def test_a_driver_that_slept_while_another_took_over_leaves(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    other.send_signal(signal.SIGSTOP)
    blind(tmp_path)
    with only_driver(tmp_path, "mine"):
        other.send_signal(signal.SIGCONT)
        _, err = outputs(other, 30)
    assert other.returncode == driver.LEFT
    assert "mine was taken over by" in err


@pytest.mark.slow
def test_a_driver_that_slept_while_another_took_over_and_ended_leaves(
    tmp_path: Path, other: subprocess.Popen[str]
) -> None:
    other.send_signal(signal.SIGSTOP)
    blind(tmp_path)
    with only_driver(tmp_path, "mine"):
        pass
    other.send_signal(signal.SIGCONT)
    _, err = outputs(other, 30)
    assert other.returncode == driver.LEFT
    assert "mine was taken over by another driver, which has ended" in err


def test_a_driver_whose_file_somebody_removes_writes_it_again(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    (tmp_path / DRIVER_FILE).unlink()
    wait_until((tmp_path / DRIVER_FILE).exists, 30)
    assert other.poll() is None


def test_a_driver_that_ends_leaves_the_file_of_one_that_has_taken_over(tmp_path: Path) -> None:
    with only_driver(tmp_path, "mine"):
        taken = {"id": "theirs", "machine": "far/1", "pid": 1, "beat": 0}
        driver._DriverFile(tmp_path).write(taken)
    assert driver._DriverFile(tmp_path).read() == taken


def test_a_sweep_in_an_object_store_has_one_driver_among_machines_that_share_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ObjectStore(f"file://{tmp_path}/bucket/mine")
    monkeypatch.setattr(driver, "BEAT_S", 0.2)
    monkeypatch.setattr(driver, "SILENCE_S", 1.0)
    with only_driver(tmp_path / "here", "mine", machine="near/1", store=store):
        with (
            pytest.raises(UserError, match="process, on near;"),
            only_driver(tmp_path / "there", "mine", machine="far/1", store=store),
        ):
            pass
        left = store.read(DRIVER_FILE)
        assert left is not None
    assert store.read(DRIVER_FILE) is None
    store.write(DRIVER_FILE, left)  # as a machine that is lost leaves it
    began = time.monotonic()
    with only_driver(tmp_path / "there", "mine", machine="far/1", store=store):
        assert time.monotonic() - began >= 1.0


def test_trials_and_exploits_that_began_after_the_study_was_copied_are_removed_from_the_store(tmp_path: Path) -> None:
    storage, _ = open_study_storage(tmp_path / STUDY_FILE)
    trial = optuna.create_study(study_name="mine", storage=storage).ask()
    trial.set_user_attr(NUMBER, 3)
    trial.set_user_attr(f"{ORIGIN_PREFIX}1", {"trial": "0001", "step": 20})
    store = ObjectStore(f"file://{tmp_path}/store/mine")
    known = ["0003/reports.jsonl", "0003/lineage-1/reports.jsonl", "0005/lineage-1/reports.jsonl"]
    kept = [*known, "0003/lineage-1/step-00000020/files.json", "0003/pinned/step-00000020/files.json"]
    unknown = ["0003/lineage-2/reports.jsonl", "0003/lineage-2/step-00000040/files.json", "0004/reports.jsonl"]
    for name in [*kept, *unknown]:
        store.write(f"trials/{name}", b"")
    plan: Any = SimpleNamespace(store=store, folder=tmp_path, name="mine")
    earlier: Any = SimpleNamespace(all_trials=[SimpleNamespace(trial="0005")])  # of a study that was damaged
    bring_reports(plan, earlier)
    assert sorted((store / "trials").names()) == sorted(kept)
    found = (tmp_path / "trials").rglob("*.jsonl")
    assert sorted(each.relative_to(tmp_path / "trials").as_posix() for each in found) == sorted(known)


def test_of_two_sweeps_of_one_name_started_at_the_same_moment_one_is_told_that_it_is_taken(
    working_folder: Path,
) -> None:
    plans = [make_plan(["conf=digits"], [], "mine", "") for _ in range(2)]
    make_folder(plans[0])
    with pytest.raises(UserError, match=r"a sweep named 'mine' was started at the same moment, .*another --name"):
        make_folder(plans[1])
