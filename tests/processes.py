"""Processes that tests start: their output, and their end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil


def run_python(
    *arguments: str | Path,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    status: int | None = 0,
    within_s: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run Python to its end, with these variables beside those of the tests; the test fails with its output if it takes
    longer than ``within_s`` or ends with another status. None: any status, and all the time of the test."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = outputs(process, within_s)
    assert status in (None, process.returncode), f"{arguments} ended with {process.returncode}\n{out}\n{err}"
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def outputs(process: subprocess.Popen[str], within_s: float | None, given: str | None = None) -> tuple[str, str]:
    """Output and errors of a process until it ends; empty where they are no pipe.

    If it takes too long, or the test's own time is over, it is killed with all that it has started, which would slow
    the next tests, and the test fails with its output.
    """
    try:
        out, err = process.communicate(given, timeout=within_s)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{process.args} did not end within {within_s:g} s\n{_killed(process)}") from None
    except BaseException as error:
        error.add_note(_killed(process))
        raise
    return out or "", err or ""


def process_with(argument: str) -> int:
    """Process id of the one process that has this argument on its command line."""
    (found,) = [each.pid for each in psutil.process_iter(["cmdline"]) if argument in (each.info["cmdline"] or [])]
    return int(found)


def _killed(process: subprocess.Popen[str]) -> str:
    """Kill a process with its descendants; returns what it has printed."""
    family = []
    with suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for each in family:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(family, timeout=10)
    try:
        out, err = process.communicate(timeout=10)
    except subprocess.TimeoutExpired as error:  # who has left the family still holds the pipe
        out, err = _text(error.stdout), _text(error.stderr)
    return f"--- its output\n{out or ''}\n--- its errors\n{err or ''}"


def _text(said: Any) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said or ""
