"""The logs of trials and single trials, shown by the command line, by the API, on a page, and from MLflow alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from recording import CONFIG, open_recorder
from stores import RecordedStore
from verbs import printed, refusal
from waiting import wait_until
from web_server import WebServer, served

import sweeps
from sweeps.cli import run_command
from sweeps.folders.trial_files import START_LINE, logs_folder
from sweeps.runtime import log_writer, worker_loop
from sweeps.runtime.log_writer import BoundedFile
from sweeps.texts.printable import printable
from sweeps.tracking import trial_logs
from sweeps.tracking.control_channel import Request, RequestListener
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.recorder import Recorder
from sweeps.tracking.trial_history import FailedAttempt, TimedNote
from sweeps.tracking.trial_logs import TrialLogs
from sweeps.tracking.values import latest_as_json, read_list

Captured = pytest.CaptureFixture[str]
ERROR = "KeyError: 'x' (at users.py:3 in train: {}['x']); worker 1 on vm"
FOLDER = Path("outputs", "told")


def log_of(trial: str, worker: int) -> Path:
    return logs_folder(FOLDER.absolute(), trial) / f"worker-{worker}.log"


def write(trial: str, worker: int, text: str) -> None:
    log = log_of(trial, worker)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        file.write(text)


def begin(uri: str) -> Recorder:
    """A sweep that runs, of which one trial has failed and another one trains."""
    recorder = open_recorder(uri, "told")
    for trial in ("0003", "0004"):
        recorder.trials.start(trial, {"train.lr": 0.1}, CONFIG, 1)
        for worker in (0, 1):
            write(trial, worker, f"{START_LINE}worker {worker} of 2 ---\nhello of {trial}/{worker}\n")
    write("0003", 1, "password=hunter2 \x1b[31mred\x1b[0m\nepoch 1\repoch 2\nTraceback ...\n")
    moved = FailedAttempt(attempt=1, ended=1e9, error="its node leaves", moved=True)
    recorder.trials.record_failures("0003", [FailedAttempt(attempt=1, ended=1e9, error=ERROR), moved])
    recorder.trials.record_notes("0003", [TimedNote(at=1e9, text="worker 1 is slow")])
    recorder.trials.attach("0003", "logs/attempt-1.traceback.txt", "Traceback\nwhole")
    (log_of("0003", 0).parent / "attempt-1.traceback.txt").write_text("Traceback\nwhole")
    recorder.trials.end("0003", "failed", 5, 1, ERROR)
    recorder.trials.attach_logs("0003")
    return recorder


def record_ended(uri: str) -> None:
    """Record the sweep of ``begin`` to its end."""
    recorder = begin(uri)
    recorder.trials.end("0004", "finished", 9, 1)
    recorder.trials.attach_logs("0004")
    assert not recorder.close("finished")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedStore:
    return RecordedStore(tmp_path_factory.mktemp("told"), record_ended)


@pytest.fixture
def ended(recorded: RecordedStore, monkeypatch: pytest.MonkeyPatch) -> str:
    """URI of the store of a sweep that has ended, in whose folder the test works."""
    monkeypatch.chdir(recorded.folder)
    uri = recorded.restore()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return uri


@pytest.fixture
def serving(ended: str) -> Iterator[WebServer]:
    with served(ended) as server:
        yield server


def test_logs_and_trials_are_shown_from_the_folder_and_from_mlflow_when_it_is_gone(
    ended: str, capsys: Captured
) -> None:
    shows_logs(capsys)
    shows_a_trial(capsys)
    shutil.rmtree(FOLDER)
    shows_logs(capsys)
    shows_a_trial(capsys)


@pytest.mark.usefixtures("ended")
def test_debug_shows_the_whole_traceback_of_a_trial(typed: Callable[..., tuple[int, str, str]]) -> None:
    for more, is_shown in (([], False), (["--debug"], True)):
        assert ("Traceback\nwhole" in typed("show", "told", "--trial", "3", *more)[1]) is is_shown


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may look into every folder")
def test_a_colleague_who_may_not_look_into_the_folder_reads_logs_from_mlflow_and_stops_the_sweep(
    ended: str, capsys: Captured
) -> None:
    log = printed(capsys, "logs", "told", "--trial", "3")
    details = printed(capsys, "show", "told", "--trial", "3")
    recorder = open_recorder(ended, "other")
    for sweep in ("told", "other"):
        Path("outputs", sweep).chmod(0)

    def stop(request: Request) -> str:
        assert request["verb"] == "stop"
        recorder.close("stopped")
        return "it ends"

    with RequestListener(recorder.ids, stop):
        found = of_a_colleague("logs told --trial 3", "show told --trial 3", "stop other --json")
    assert found[:2] == [log, details]
    assert "other" in found[2]


SEVERAL = r"""
import sys
from sweeps.cli import run_command

for command in sys.argv[1:]:
    run_command(command.split())
    print(end="\0")
"""
"""Runs several commands in one process, since MLflow takes seconds to import."""


def of_a_colleague(*commands: str) -> list[str]:
    """Outputs of commands for a user who may do with files only what their permissions allow."""
    restricted = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--") if os.geteuid() == 0 else ()
    command = [*restricted, sys.executable, "-c", SEVERAL, *commands]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "unexpected" not in done.stderr, done.stderr
    return done.stdout.split("\0")[:-1]


def shows_logs(capsys: Captured) -> None:
    assert printed(capsys, "logs", "told", "--trial", "3", "--worker", "1").splitlines() == [
        "--- sweeps: worker 1 of 2 ---",
        "hello of 0003/1",
        "password=*** red",
        "epoch 2",
        "Traceback ...",
    ]
    assert printed(capsys, "logs", "told", "--trial", "4").splitlines() == [
        "worker 0 | --- sweeps: worker 0 of 2 ---",
        "worker 0 | hello of 0004/0",
        "worker 1 | --- sweeps: worker 1 of 2 ---",
        "worker 1 | hello of 0004/1",
    ]
    from_python = sweeps.logs("told", "3")
    assert (from_python[0], from_python[1].splitlines()[1:]) == (
        "--- sweeps: worker 0 of 2 ---\nhello of 0003/0\n",
        ["hello of 0003/1", "password=*** red", "epoch 2", "Traceback ..."],
    )
    of_all = printed(capsys, "logs", "told", "-n", "1").splitlines()
    assert of_all == [
        "trial 0003 worker 0 | hello of 0003/0",
        "trial 0003 worker 1 | Traceback ...",
        "trial 0004 worker 0 | hello of 0004/0",
        "trial 0004 worker 1 | hello of 0004/1",
    ]


def shows_a_trial(capsys: Captured) -> None:
    text = printed(capsys, "show", "told", "--trial", "3")
    for said in ("0003 of told: failed after 5 steps", "train.lr", "attempt 1 failed at 2001-09-0", ERROR):
        assert said in text
    assert ": worker 1 is slow" in text
    assert "without having failed: its node leaves" in text
    assert "hello of 0003/0" in text
    assert "hunter2" not in text
    document = json.loads(printed(capsys, "show", "told", "--trial", "3", "--json"))
    assert document["failed_attempts"] == [{"attempt": 1, "ended": 1e9, "error": ERROR}]
    assert document["moves"] == [{"ended": 1e9, "reason": "its node leaves"}]
    assert document["notes"] == [{"at": 1e9, "text": "worker 1 is slow"}]
    assert document["traceback"].splitlines() == ["Traceback", "whole"]
    assert document["logs"]["1"][-1] == "Traceback ..."
    assert document["params"] == {"train.lr": 0.1}


def test_a_server_shows_the_same(serving: WebServer, capsys: Captured) -> None:
    for arguments in (
        ["logs", "told"],
        ["logs", "told", "--trial", "3", "-n", "2"],
        ["logs", "told", "--trial", "3", "--worker", "0", "--follow"],
        ["show", "told", "--trial", "3"],
        ["show", "told", "--trial", "4", "--json"],
    ):
        here = printed(capsys, *arguments)
        assert here
        assert printed(capsys, *arguments, "--server", serving.url) == here, arguments
    for arguments in (["logs", "told", "--trial", "9"], ["show", "told", "--trial", "9"], ["logs", "toll"]):
        here_status, here_error = run_command(arguments)
        status, error = run_command([*arguments, "--server", serving.url])
        assert (status, str(error)[:20]) == (here_status, str(here_error)[:20]) == (2, str(error)[:20])


def test_a_trial_that_is_given_as_a_further_word_is_told_the_option() -> None:
    error = refusal("logs", "told", "1")
    assert str(error).endswith("Got unexpected extra argument (1); a trial is given as --trial ID")


def test_what_is_not_there_is_named(ended: str) -> None:
    status, error = run_command(["logs", "told", "--trial", "3", "--worker", "7"])
    assert (status, error) == (2, "--worker=7: trial 0003 has logs of the workers 0, 1")
    assert run_command(["logs", "told", "--worker", "7"]) == (2, "--worker=7: told has logs of the workers 0, 1")
    shutil.rmtree(FOLDER / "trials")
    assert run_command(["show", "told", "--trial", "3", "--watch"])[0] == 2


def test_follow_shows_what_comes_until_the_trial_has_ended(
    uri: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setattr("sweeps.cli.logs.POLL_EVERY_S", 0.1)
    recorder = begin(uri)
    wait_until(lambda: [each.state for each in load_sweep(uri, "told").trials] == ["failed", "running"])

    def goes_on() -> None:
        for line in range(3):
            time.sleep(0.15)
            write("0004", 0, f"line {line}\n")
        write("0004", 0, "without an end")
        recorder.trials.end("0004", "finished", 9, 1)

    thread = threading.Thread(target=goes_on)
    thread.start()
    text = printed(capsys, "logs", "told", "--trial", "4", "--worker", "0", "--follow")
    thread.join()
    assert not recorder.close("finished")
    assert text.splitlines()[1:] == ["hello of 0004/0", "line 0", "line 1", "line 2", "without an end"]


def test_a_log_is_read_in_parts_and_goes_on_where_it_was_cut_meanwhile(
    ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in {"HEAD": 2**16, "TAIL": 2**16, "LARGEST": 4 * 2**16}.items():
        monkeypatch.setattr(log_writer, name, size)
    monkeypatch.setattr(trial_logs, "AT_MOST", 2**16)
    record = load_sweep(ended, "told")
    trial = next(each for each in record.trials if each.trial == "0004")
    file = BoundedFile(str(log_of("0004", 5)))
    end, written, position, lines = 4_000 * 99, 0, 0, list[str]()
    while written < 4_000:
        for _ in range(200):
            file.write(f"{written:098}\n".encode())
            written += 1
        part = TrialLogs(record, trial).read(5, position)
        assert len(part.text) <= 2**16 + 100
        lines += part.text.splitlines()
        assert part.position > position
        position = part.position
    while position < end:
        part = TrialLogs(record, trial).read(5, position)
        lines += part.text.splitlines()
        position = part.position
    assert position == end
    assert [int(line) for line in lines] == list(range(4_000))  # it kept up: nothing was left out of what it read
    again, position = list[str](), 0
    while position < end:
        part = TrialLogs(record, trial).read(5, position)
        assert part.more is (part.position < end)
        again += part.text.splitlines()
        position = part.position
    assert sum("bytes are left out here]" in line for line in again) == 1
    assert again[0] == f"{0:098}"
    assert again[-1] == f"{3_999:098}"
    file.close()


def test_a_link_in_place_of_a_log_is_not_followed(ended: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of somebody else")
    log_of("0004", 9).symlink_to(secret)
    error = refusal("logs", "told", "--trial", "4", "--worker", "9")
    assert "of somebody else" not in str(error)


def test_what_a_terminal_would_obey_is_left_out() -> None:
    assert printable("a\x1b]0;title\x07b\x1b[2Jc\td\r\ne\x9b3m\n") == "abc\td\ne\n"
    assert printable("1%\r50%\r100%\ndone") == "100%\ndone"
    below = "".join(f"\n\r{part}%\x1b[A" for part in (0, 50, 100))  # as tqdm writes a bar below another one
    assert printable(f"\rtrain{below}\r    \r\n\r    \r\x1b[A{{'loss': 1}}\n\rtrain\n") == "{'loss': 1}\ntrain\n"


def test_failed_attempts_fit_into_a_tag() -> None:
    failures = [FailedAttempt(attempt=each, ended=1.5, error="x" * 5000) for each in range(1, 50)]
    text = latest_as_json([each.as_json() for each in failures])
    kept = read_list(text, lambda each: FailedAttempt(**each))
    assert len(text) < 8000
    assert kept[-1].attempt == 49
    assert len(kept[-1].error) == 700
    assert read_list("{}", str) == read_list("no", str) == ()


def test_the_page_of_a_trial_shows_its_errors_and_logs(serving: WebServer) -> None:
    from fastapi.testclient import TestClient

    from sweeps.service.api.app import make_app

    with TestClient(make_app(serving.service), base_url="http://127.0.0.1:8642") as client:
        page = client.get("/sweeps/told/trials/3")
        assert page.status_code == 200
        for said in ("Trial 0003 of told", "KeyError", "hello of 0003/0"):
            assert said in page.text
        other_worker = client.get("/sweeps/told/trials/3", params={"worker": 1}).text
        assert "hello of 0003/1" in other_worker
        assert "password=*** red" in other_worker
        assert 'href="/sweeps/told/trials/0003"' in client.get("/sweeps/told").text
        assert client.get("/sweeps/told/trials/99").status_code == 404
        assert client.get("/sweeps/told/trials/x").status_code == 422


def test_the_end_of_a_log_has_the_stack_of_the_training_thread_alone(ended: str) -> None:
    record = load_sweep(ended, "told")
    trial = next(each for each in record.trials if each.trial == "0004")
    stack = f'  File "users.py", line 3 in train\n  File "{worker_loop.__file__}", line 9 in _train\n'
    crash = "Fatal Python error: Segmentation fault\n\n"
    other = 'Thread 0x00007f2 (most recent call first):\n  File "threading.py", line 5 in wait\n\n'
    write(
        "0004",
        6,
        f"{crash}Current thread 0x00007f1 (most recent call first):\n{stack}\n{other}Extension modules: numpy\n",
    )
    lines = TrialLogs(record, trial).last_lines(6, 20)
    assert lines == [*crash.splitlines(), "Current thread 0x00007f1 (most recent call first):", *stack.splitlines()]
