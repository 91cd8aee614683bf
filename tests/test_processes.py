"""How tests wait for the processes that they start."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from processes import outputs
from waiting import wait_until

HANGS = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("said", child.pid, sys.stdin.readline(), flush=True)
print("complained", file=sys.stderr, flush=True)
time.sleep(600)
"""


def started(code: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_a_process_that_takes_too_long_is_killed_with_its_children_and_the_test_fails_with_its_output() -> None:
    process = started(HANGS)
    wait_until(psutil.Process(process.pid).children)  # what takes long on a busy machine; then it waits for its input
    with pytest.raises(AssertionError, match=r"did not end within 2 s(.|\n)*said \d+ given(.|\n)*complained") as error:
        outputs(process, 2, given="given\n")
    assert process.poll() is not None
    child = re.search(r"said (\d+)", str(error.value))
    assert child is not None
    assert _is_gone(int(child[1]))


def test_it_is_also_killed_when_the_time_of_the_test_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    process = started(HANGS)

    def timed_out(*_: object, **__: object) -> tuple[str, str]:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "communicate", timed_out)
    with pytest.raises(KeyboardInterrupt) as error:
        outputs(process, 100)
    assert process.poll() is not None
    assert "its errors" in error.value.__notes__[0]


def test_a_process_that_ends_gives_its_output_and_an_empty_one_where_there_is_no_pipe() -> None:
    assert outputs(started("import sys; print(input()); sys.exit('no')"), 60, given="yes\n") == ("yes\n", "no\n")
    process = subprocess.Popen([sys.executable, "-c", "pass"], stdin=subprocess.DEVNULL, text=True)
    assert outputs(process, 60) == ("", "")


def test_every_test_that_limits_the_time_of_a_process_does_so() -> None:
    folder = Path(__file__).parent
    waiting = re.compile(r"\.(communicate|wait)\([^()]*timeout=")
    files = {each for each in folder.rglob("*.py") if waiting.search(each.read_text(encoding="utf-8"))}
    assert files == {folder / "processes.py"}, "use processes.outputs"


def _is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
