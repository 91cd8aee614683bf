"""A command line in the background: started, found again by whoever comes later, and asked how it ended.

It is a process in a session of its own, which outlives the one that starts it. It holds a lock from before its first
instruction until its death, however it dies: who gets that lock knows that it does not run.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sweeps.files import private_opener, write_json
from sweeps.folder import LOG_FILE

LOCK_FILE = "lock"
"""Held by the process, and says its number."""
REQUEST_FILE = "request.json"
OUTCOME_FILE = "outcome.json"
ENTRY = "sweeps.cli.detached"
"""The module that it runs."""

OF_THE_TERMINAL = ("SWEEPS_SERVER", "SWEEPS_TOKEN", "SWEEPS_TOKEN_FILE", "SWEEPS_DATABASE")
"""Environment variables by which a command line would ask a service, instead of doing it, and of a service itself."""


@dataclass(frozen=True)
class Outcome:
    """How it ended."""

    status: int
    """Exit status."""
    error: str | None
    """In a sentence, if it did not do what was asked."""
    document: Any
    """What it printed with ``--json``."""


def control_folder(output_dir: Path, name: str) -> Path:
    """Where a process in the background has its request, its lock, its log and its outcome.

    Args:
        output_dir: Of its sweep.
        name: Of the process.
    """
    return output_dir / ".background" / name


def start(
    folder: Path,
    commands: Sequence[Sequence[str]],
    sweep_folder: Path,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes] | None:
    """Start command lines, one after another as long as each does what it is asked; None if they run already.

    Args:
        folder: Of this process alone, where its request, its lock, its log and its outcome are.
        commands: What is typed after ``python -m sweeps``. It stands in a file that nobody else can read, since
            everybody can see the arguments of a process.
        sweep_folder: Of the sweep, which gets the log, too.
        environment: Of the process; default: this one's.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _lock(folder) as lock:
        if lock is None:
            return None
        (folder / OUTCOME_FILE).unlink(missing_ok=True)
        write_json(folder / REQUEST_FILE, {"commands": commands, "sweep_folder": str(sweep_folder)})
        with open(folder / LOG_FILE, "ab", opener=private_opener) as log:
            return subprocess.Popen(
                [sys.executable, "-m", ENTRY, str(folder), str(lock.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={name: value for name, value in (environment or os.environ).items() if name not in OF_THE_TERMINAL},
                pass_fds=[lock.fileno()],
                start_new_session=True,
            )


def is_running(folder: Path) -> bool:
    """Whether the process runs that was started with this folder."""
    if not (folder / LOCK_FILE).exists():
        return False
    with _lock(folder) as lock:
        return lock is None


def send(folder: Path, number: signal.Signals) -> None:
    """Send a signal to the process, if it runs; ``SIGKILL`` to all of its session."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / LOCK_FILE).read_text(encoding="ascii"))
        if is_running(folder):
            os.killpg(pid, number) if number == signal.SIGKILL else os.kill(pid, number)


def forget_lost(folder: Path) -> None:
    """The machine on which the process was started is lost: its number means another process here, and the lock is one
    that storage may never be told to let go."""
    (folder / LOCK_FILE).unlink(missing_ok=True)


def outcome(folder: Path) -> Outcome | None:
    """How the process ended; None if it runs, or died before it could say so."""
    try:
        return Outcome(**json.loads((folder / OUTCOME_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def last_words(folder: Path, lines: int = 5) -> str:
    """The end of its log, for who has to find out why it died."""
    try:
        return "\n".join((folder / LOG_FILE).read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


@contextlib.contextmanager
def _lock(folder: Path) -> Any:
    """The lock's file; None if it is held. A process that inherits the file has the lock until it ends."""
    with (folder / LOCK_FILE).open("a", encoding="ascii") as file:
        yield file if _taken(file) else None


def _taken(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
