"""A worker's output goes to its trial's log: from children and native code too, bounded, and when it is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from processes import outputs
from waiting import wait_until

from sweeps.runtime.log_writer import LARGEST, LEFT_OUT, BoundedFile, Writer
from sweeps.runtime.native_stacks import explained, hang_error, last_start
from sweeps.runtime.worker_log import STACKS_SIGNAL
from sweeps.worker_error import WorkerError

WORKER = """
import ctypes, logging, os, re, subprocess, sys, time
from sweeps.runtime.worker_log import WorkerLog
log = WorkerLog(1, 2)
"""


@contextmanager
def worker(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process that is a worker as far as its log is concerned; its own output is what gets past the log."""
    command = [sys.executable, "-c", WORKER + code, *map(str, arguments)]
    environment = {**os.environ, "MARK": str(arguments[0])}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ran(code: str, *arguments: object) -> str:
    with worker(code, *arguments) as process:
        return outputs(process, 60)[0]


def logged(folder: Path) -> str:
    return (folder / "worker-1.log").read_text(encoding="utf-8", errors="replace")


def lost() -> WorkerError:
    return WorkerError("lost", "ActorDiedError", "worker 1 on vm was lost: its process was killed", 1, 2, "vm")


def test_prints_logs_children_and_native_code_go_to_the_file_of_the_trial_that_runs(tmp_path: Path) -> None:
    out = ran(
        """
print("before")
for trial in sys.argv[1:]:
    with log.of_trial(trial):
        print("printed")
        print("to stderr", file=sys.stderr)
        logging.getLogger("users.code").info("at INFO")
        subprocess.run(["echo", "from a child"])
        ctypes.CDLL(None).puts(b"from native code")
        if os.fork() == 0:
            os.write(1, b"from a fork\\n")
            os._exit(0)
        os.wait()
    print("between")
with log.of_trial(sys.argv[1]):
    logging.basicConfig(format="theirs: %(message)s", level=logging.DEBUG, force=True)
    logging.debug("configured")
with log.of_trial(sys.argv[1]):
    sys.stdout.close()
    sys.stderr.close()
with log.of_trial(sys.argv[1]):
    print("printed after another trial has closed its streams")
    print("to a new stderr", file=sys.stderr)
""",
        tmp_path / "0000",
        tmp_path / "0001",
    )
    assert out.split() == ["before", "between", "between"]
    first, again, started_again = (
        logged(tmp_path / "0000"),
        logged(tmp_path / "0001"),
        last_start(str(tmp_path / "0000"), 1),
    )
    for text in (first, again):
        assert text.startswith("--- sweeps: worker 1 of 2 on ")
        for said in (
            "printed",
            "to stderr",
            "INFO users.code: at INFO",
            "from a child",
            "from native code",
            "from a fork",
        ):
            assert text.count(f"{said}\n") == 1
    assert "theirs: configured\n" in first
    assert started_again is not None
    assert started_again.splitlines()[1:] == [
        "printed after another trial has closed its streams",
        "to a new stderr",
    ]


def test_streams_of_the_users_own_that_cannot_be_flushed_fail_no_trial(tmp_path: Path) -> None:
    out = ran(
        """
class Twice:
    def write(self, text):
        return os.write(1, 2 * text.encode())

with log.of_trial(sys.argv[1]):
    sys.stdout, sys.stderr = Twice(), None
    print("printed")
os.write(1, b"ended")
""",
        tmp_path,
    )
    assert out == "ended"
    assert logged(tmp_path).count("printed") == 2


def test_all_that_a_killed_worker_has_printed_is_there_at_once(tmp_path: Path) -> None:
    code = """
with log.of_trial(sys.argv[1]):
    for line in range(20_000):
        print("line", line)
    os.kill(os.getpid(), 9)
"""
    with worker(code, tmp_path) as process:
        assert process.wait(60) == -signal.SIGKILL
    wait_until(lambda: logged(tmp_path).endswith("line 19999\n"))
    assert logged(tmp_path).count("\n") == 20_001
    error = explained(lost(), str(tmp_path))
    assert (
        error.message == "worker 1 on vm was lost: its process was killed, as when memory runs out, or called os._exit"
    )
    owner = replace(lost(), node="", message="the process that runs its worker group was lost: killed")
    assert explained(owner, str(tmp_path)) == owner


def test_lines_are_in_the_file_while_the_worker_runs(tmp_path: Path) -> None:
    with worker("with log.of_trial(sys.argv[1]):\n    print('now')\n    sys.stdin.read()", tmp_path):
        wait_until(lambda: (tmp_path / "worker-1.log").exists() and "now\n" in logged(tmp_path))


def test_a_print_of_30_mb_keeps_its_beginning_and_its_end_and_says_what_is_left_out(tmp_path: Path) -> None:
    out = ran(
        """
with log.of_trial(sys.argv[1]):
    print("the beginning")
    began = time.perf_counter()
    for line in range(300_000):
        sys.stdout.write(f"{line:099}\\n")
    took = time.perf_counter() - began
    print("the end")
print(took)
""",
        tmp_path,
    )
    text = (tmp_path / "worker-1.log").read_bytes()
    assert len(text) <= LARGEST
    (said,) = LEFT_OUT.finditer(text)
    kept = len(text) - (said.end() - said.start())
    begins = text.index(b"\n") + 1
    assert kept - begins + int(said[1].replace(b",", b"")) == 30_000_000 + len(b"the beginning\nthe end\n")
    assert text[begins:].startswith(b"the beginning\n")
    assert text.endswith(f"{299_999:099}\nthe end\n".encode())
    assert all(len(line) == 99 for line in text[said.end() :].splitlines()[:-1])
    assert float(out) < 10  # 0.15 seconds on an idle machine


def test_a_log_that_was_cut_goes_on_and_counts_all_that_is_left_out(tmp_path: Path) -> None:
    path, line = tmp_path / "logs" / "worker-0.log", b"x" * 99 + b"\n"
    for _ in range(3):
        file = BoundedFile(str(path))
        for _ in range(120):
            file.write(line * 1000)
        file.close()
    text = path.read_bytes()
    (said,) = LEFT_OUT.finditer(text)
    kept = len(text) - (said.end() - said.start())
    assert kept + int(said[1].replace(b",", b"")) == 3 * 120 * 1000 * 100
    assert not list(tmp_path.glob(".*"))


def test_logs_in_neighbouring_folders_can_be_cut_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (BoundedFile(str(tmp_path / slot / "worker-0.log")) for slot in ("slot-0000-1", "slot-0001-1"))
    rename, meanwhile = Path.replace, [b"b" * (LARGEST + 1)]

    def rename_after_the_other(self: Path, target: Path) -> Path:
        if meanwhile:
            second.write(meanwhile.pop())
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", rename_after_the_other)
    first.write(b"a" * (LARGEST + 1))
    for slot, letter in (("slot-0000-1", b"a"), ("slot-0001-1", b"b")):
        text = (tmp_path / slot / "worker-0.log").read_bytes()
        assert set(LEFT_OUT.sub(b"", text).strip(letter)) <= {ord("\n")}
        assert len(text) < LARGEST


def test_a_full_disk_does_not_hold_up_the_worker(small_disk: Callable[[int], Path]) -> None:
    folder = small_disk(200)
    out = ran(
        "with log.of_trial(sys.argv[1]):\n    sys.stdout.write('x' * 5_000_000)\nprint('went on')", folder / "logs"
    )
    assert out == "went on\n"


def test_a_killed_writer_neither_blocks_nor_fails_the_worker(tmp_path: Path) -> None:
    out = ran(
        """
import psutil
(writer,) = [each for each in psutil.process_iter(["cmdline", "environ"])
             if any(part.endswith("log_writer.py") for part in each.info["cmdline"] or [])
             and (each.info["environ"] or {}).get("MARK") == sys.argv[1]]
with log.of_trial(sys.argv[1]):
    writer.kill()
    for _ in range(100):
        sys.stdout.write("x" * 1_000_000)
        print()
with log.of_trial(sys.argv[1]):
    print("again")
print("went on")
""",
        tmp_path,
    )
    assert out.endswith("went on\n"), out[-1000:]


@pytest.mark.timeout(60)
def test_a_child_that_prints_for_ever_does_not_keep_the_writer_from_answering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    reading, writing = os.pipe()
    monkeypatch.setattr(BoundedFile, "write", lambda _, data: os.write(writing, data))  # as if it printed it again
    writer = Writer(theirs)
    with ours, theirs:
        socket.send_fds(ours, [json.dumps(str(tmp_path / "worker-0.log")).encode()], [reading])
        writer._receive()
        os.write(writing, b"x" * 60_000)
        ours.sendall(b"?")
        writer._receive()
        assert ours.recv(1) == b"."
    os.close(writing)


def test_a_crash_leaves_its_native_stacks_and_the_line_of_the_users_code(tmp_path: Path) -> None:
    (tmp_path / "users.py").write_text("import ctypes\ndef train():\n    ctypes.string_at(0)\n")
    code = "sys.path.insert(0, sys.argv[1])\nimport users\nwith log.of_trial(sys.argv[1]):\n    users.train()"
    with worker(code, tmp_path) as process:
        assert process.wait(60) == -signal.SIGSEGV
    wait_until(lambda: (tmp_path / "worker-1.log").exists() and "users.py" in logged(tmp_path))
    error = explained(lost(), str(tmp_path))
    place = f"{tmp_path}/users.py:3 in train: ctypes.string_at(0)"
    assert error.described == f"worker 1 on vm crashed: Segmentation fault (at {place})"
    assert "Current thread 0x" in error.traceback


def test_a_worker_that_hangs_in_native_code_with_the_gil_says_where(tmp_path: Path) -> None:
    (tmp_path / "users.py").write_text("import re\ndef train():\n    re.match('(a*)*b', 'a' * 40)\n")
    code = "sys.path.insert(0, sys.argv[1])\nimport users\nwith log.of_trial(sys.argv[1]):\n    users.train()"
    with worker(code, tmp_path) as process:
        wait_until((tmp_path / "worker-1.log").exists)
        time.sleep(0.5)
        os.kill(process.pid, STACKS_SIGNAL)
        wait_until(lambda: "users.py" in logged(tmp_path))
    told = hang_error("no report for 60 s: its workers hang", [("n", 1), ("n", 2)], ("vm", "vm"), str(tmp_path))
    place = f"{tmp_path}/users.py:3 in train: re.match('(a*)*b', 'a' * 40)"
    stacks = "all stacks are in logs/ of the trial's run"
    assert told.described == f"no report for 60 s: its workers hang (worker 1 at {place}); {stacks}"
    assert "--- worker 0 ---\n(it has written no stacks)" in told.traceback


@pytest.mark.parametrize("logs", ["nowhere", "."])
def test_a_lost_worker_without_a_log_is_told_as_ray_tells_it(logs: str) -> None:
    assert explained(lost(), logs) == lost()
