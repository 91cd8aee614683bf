"""One sweep from its command to its first report: seconds, processor seconds, and the imports of its processes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

HERE = Path(__file__).resolve().parent
REPORT = b'"kind": "Report"'
"""In a line of a trial's report log, which its main worker writes before it posts the report."""
AT_MOST_S = 300.0
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Process:
    """A process of a sweep at its first report."""

    role: str
    processor_s: float
    imports: dict[str, float]
    """Processor seconds of imported packages, without those of the packages that they import in turn."""


@dataclass(frozen=True)
class Start:
    """A measured start of a sweep."""

    seconds: float
    """Between the command and the first report."""
    processor_s: float
    """Processor seconds of all processes in that time."""
    processes: list[Process]


class NoReport(Exception):
    """A sweep has made no report; the message has the end of what it has printed."""


def measure(checkout: Path, tokens: Sequence[str], *, with_imports: bool) -> Start:
    """Start a sweep in an empty folder with the sources of a checkout and the libraries of this interpreter, and end it
    at its first report. Imports are measured on request, which takes some time itself."""
    # Processes whose parents end stay in this one's family, with the processor seconds of their ended children.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    folder = Path(tempfile.mkdtemp(prefix="start-"))
    imports, printed = folder / "imports", folder / "printed"
    imports.mkdir()
    paths = [str(checkout), str(checkout / "src"), *([str(HERE)] if with_imports else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "RAY_TMPDIR": str(folder)}
    environment["SWEEPS_IMPORTS"] = str(imports)
    reaped = _of_ended_children()
    began = time.monotonic()
    with printed.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "sweeps", "run", *tokens],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        while not _has_report(folder):
            if process.poll() is not None or time.monotonic() - began > AT_MOST_S:
                raise NoReport(f"{' '.join(tokens)}: {printed.read_text(encoding='utf-8')[-2000:]}")
            time.sleep(0.02)
        seconds = time.monotonic() - began
        family = psutil.Process().children(recursive=True)
        found = [each for each in (_described(member, imports) for member in family) if each is not None]
        total = sum(each.processor_s for each in found) + _of_ended_children() - reaped
        return Start(seconds, total, found)
    finally:
        _kill_family()
        shutil.rmtree(folder, ignore_errors=True)


def _has_report(folder: Path) -> bool:
    return any(REPORT in file.read_bytes() for file in folder.glob("outputs/*/trials/*/reports.jsonl"))


def _described(process: psutil.Process, imports: Path) -> Process | None:
    try:
        with process.oneshot():
            times, command = process.cpu_times(), process.cmdline()
    except psutil.Error:
        return None
    seconds: Counter[str] = Counter()
    file = imports / str(process.pid)
    for line in file.read_text(encoding="ascii").splitlines() if file.exists() else ():
        package, _, number = line.partition(" ")
        seconds[package] += float(number)
    total = times.user + times.system + times.children_user + times.children_system
    return Process(_role(command), total, dict(seconds))


def _role(command: Sequence[str]) -> str:
    """Return the kind of a process, from its command."""
    text = " ".join(command)
    if "-m sweeps run" in text:
        return "driver"
    if text.startswith("ray::"):
        return text.removeprefix("ray::").partition(".")[0].strip()
    scripts = [Path(part) for part in command if part.endswith(".py")]
    names = {script.name: f"Ray: {script.parent.name}/{script.name}" for script in scripts}
    return next(iter(names.values()), f"Ray: {Path(command[0]).name}" if command else "ended")


def _of_ended_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _kill_family() -> None:
    """Kill all processes that this one has started, and those that they have."""
    while family := psutil.Process().children(recursive=True):
        for each in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    break
            except ChildProcessError:
                return
        time.sleep(0.05)
