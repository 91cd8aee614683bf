"""Signals to a driver that starts, and the heartbeat of one that does not go on."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from processes import run_python
from running import NO_PREFLIGHT
from stores import make_store
from waiting import wait_until

from sweeps.compat.ray_core import keeping_handler_of_sigterm
from sweeps.driver import driver_progress as progress
from sweeps.driver.signals import LeaveNow, ended_by_signals
from sweeps.folders import driver_lock
from sweeps.folders.driver_lock import last_heartbeat, only_driver

FORKS_AND_LOGS = """
import logging, os, signal, subprocess, sys, time
from sweeps.driver.signals import LeaveNow, ended_by_signals

# Where Ray's handler hit: in what Python calls around a fork, as logging's release of its lock is.
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))
try:
    with ended_by_signals():
        for _ in range(3):
            subprocess.Popen(["true"], preexec_fn=lambda: None).wait()  # as Ray starts its processes
            time.sleep(0.1)
            sys.stdout.write("forked\\n")
except LeaveNow:
    logging.warning("left")
"""


def test_sigterm_in_the_middle_of_a_fork_ends_the_driver_after_it() -> None:
    done = run_python("-c", FORKS_AND_LOGS, within_s=60)
    assert (done.stdout, done.stderr) == ("", "WARNING:root:left\n")


def test_the_end_of_a_terminal_that_nohup_lets_be_ignored_ends_no_sweep() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ended_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_that_comes_while_logging_holds_its_lock_waits_for_its_release(number: signal.Signals) -> None:
    class Lock:
        """A lock in whose release a signal arrives."""

        def __init__(self) -> None:
            self.lock = threading.RLock()

        def acquire(self) -> None:
            self.lock.acquire()

        def release(self) -> None:
            os.kill(os.getpid(), number)
            self.lock.release()

    before = signal.getsignal(number)
    handler = logging.StreamHandler(io.StringIO())
    own, handler.lock = handler.lock, Lock()  # type: ignore[assignment]

    @ended_by_signals()
    def log() -> None:
        handler.handle(logging.LogRecord("x", logging.INFO, "x", 1, "interrupted", None, None))
        wait_until(lambda: False, 5)

    with pytest.raises(LeaveNow):
        log()
    others: list[bool] = []
    other = threading.Thread(target=lambda: others.append(handler.lock.lock.acquire(timeout=1)))  # type: ignore[union-attr]
    other.start()
    other.join()
    assert others == [True]
    handler.lock = own
    assert signal.getsignal(number) is before


IMPORTS = """
import importlib._bootstrap, os, signal, sys, threading
from sweeps.driver.signals import LeaveNow, ended_by_signals

def trace(frame, event, argument):
    if frame.f_code.co_name == "_get_module_lock" and event == "line" and "name" in frame.f_locals:
        sys.settrace(None)
        os.kill(os.getpid(), signal.SIGTERM)
    return trace

try:
    with ended_by_signals():
        sys.settrace(trace)
        import colorsys
        while True:
            pass
except LeaveNow:
    other = threading.Thread(target=lambda: __import__("chunk"), daemon=True)
    other.start()
    other.join(5)
    print(other.is_alive())
"""


def test_sigterm_in_the_middle_of_an_import_leaves_the_lock_of_imports_free() -> None:
    done = run_python("-W", "ignore", "-c", IMPORTS, within_s=60)
    assert done.stdout == "False\n", done.stderr


ON_A_TERMINAL = """
import signal, sys
from sweeps.driver.signals import LeaveNow, ended_by_signals

try:
    with ended_by_signals():
        print("ready", flush=True)
        while True:
            signal.pause()
except LeaveNow:
    for output in (sys.stdout, sys.stderr):
        print("the outcome", file=output, flush=True)
    sys.exit(130)
"""


def test_what_is_printed_after_the_end_of_the_terminal_changes_no_exit_status() -> None:
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, [sys.executable, "-c", ON_A_TERMINAL])
    with os.fdopen(terminal, "rb", buffering=0) as shown:  # its end is that of the terminal
        assert b"ready" in shown.read(100)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 130


def test_ray_leaves_our_handler_of_sigterm_and_sets_its_own_where_there_is_none() -> None:
    from ray._private import utils

    before = signal.getsignal(signal.SIGTERM)
    try:
        for ours, kept in ((lambda *_: None, True), (signal.SIG_DFL, False)):
            signal.signal(signal.SIGTERM, ours)
            with keeping_handler_of_sigterm():
                utils.set_sigterm_handler(lambda *_: None)
            assert (signal.getsignal(signal.SIGTERM) is ours) is kept
    finally:
        signal.signal(signal.SIGTERM, before)


RAY_STARTS = """
import os, signal
from sweeps.compat.ray_core import install_handlers_of_cpp, keeping_handler_of_sigterm

signal.signal(signal.SIGTERM, lambda *_: print("ours", signal.alarm(0)))
with keeping_handler_of_sigterm():
    install_handlers_of_cpp()  # as Ray does, which then waits for its processes
    os.kill(os.getpid(), signal.SIGTERM)
"""


RAY_ENDS = """
import os, signal
from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath
from sweeps.runtime.cluster import connected

signal.signal(signal.SIGTERM, lambda *_: print("ours"))
with connected(compose_sweep("digits", ["cluster.num_cpus=1"], ConfSearchPath()).config):
    os.kill(os.getpid(), signal.SIGTERM)
os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.slow
def test_after_rays_end_sigterm_still_comes_to_our_handler() -> None:
    done = run_python("-c", RAY_ENDS, within_s=100)
    assert done.stdout == "ours\nours\n", done.stderr


def test_rays_handler_in_cpp_sets_no_alarm_that_would_abort_a_driver_while_ray_starts() -> None:
    done = run_python("-c", RAY_STARTS, within_s=60)
    assert (done.stdout, done.stderr) == ("ours 0\n", "")


def test_the_heartbeat_of_a_driver_that_does_not_go_on_stops_and_says_where_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(driver_lock, "BEAT_S", 0.02)
    monkeypatch.setattr(progress._Driver, "next_sign_by", 0.0)
    progress.expect_progress(60)
    with only_driver(tmp_path, "mine", is_stalled=progress.is_stalled):
        beats = {last_heartbeat(tmp_path)}
        wait_until(lambda: beats.add(last_heartbeat(tmp_path)) or len(beats) > 3)  # type: ignore[func-returns-value]
        progress.expect_progress(0)
        wait_until(lambda: progress._Driver.is_reported, 10)
        last = json.loads((tmp_path / "driver.json").read_text().splitlines()[0])
        threading.Event().wait(0.2)
        assert json.loads((tmp_path / "driver.json").read_text().splitlines()[0]) == last
        progress.expect_progress(60)
        beats = {last_heartbeat(tmp_path)}
        wait_until(lambda: beats.add(last_heartbeat(tmp_path)) or len(beats) > 1)  # type: ignore[func-returns-value]
    said = capfd.readouterr().err
    assert said.count("makes no progress") == 1
    assert "test_signals.py" in said


@pytest.mark.slow
@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.5, 3.0])
def test_sigterm_while_ray_starts_ends_the_driver_and_all_that_it_has_started(tmp_path: Path, after_s: float) -> None:
    make_store(tmp_path / "mlflow.db")
    command = [sys.executable, "-m", "sweeps", "run", "conf=digits", "--name=early", NO_PREFLIGHT]
    with (tmp_path / "log").open("w") as log:
        driver = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True)
        process = psutil.Process(driver.pid)
        wait_until(lambda: [each for each in process.children(recursive=True) if "gcs_server" in each.name()])
        threading.Event().wait(after_s)
        started = process.children(recursive=True)
        driver.terminate()
        status = driver.wait(60)
    said = (tmp_path / "log").read_text()
    assert status == 130, said
    assert "early was interrupted" in said
    psutil.wait_procs(started, timeout=20)
    assert [each for each in started if each.is_running() and each.status() != psutil.STATUS_ZOMBIE] == []
