"""Child processes that outlive their parent and hold a lock file while they run.

A child inherits the open, locked file at its start, so the lock is held from before its first instruction until its
death, however it dies: a process that gets the lock knows that the child is not running.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sweeps.files.whole_files import private_opener, write_json
from sweeps.folders.sweep_folder import LOG_FILE

LOCK_FILE = "lock"
"""Lock of a background process; contains its process id."""
REQUEST_FILE = "request.json"
OUTCOME_FILE = "outcome.json"
ENTRY = "sweeps.cli.detached"
"""Module that runs in a background process."""

CLIENT_VARIABLES = ("SWEEPS_SERVER", "SWEEPS_TOKEN", "SWEEPS_TOKEN_FILE", "SWEEPS_DATABASE")
"""Environment variables that would make a command line a client of a service; removed from background processes."""


@dataclass(frozen=True)
class Outcome:
    """Result of a background process."""

    status: int
    """Exit status."""
    error: str | None
    """Error in one sentence, if a command failed."""
    document: Any
    """Document that the last command printed with ``--json``."""


@contextlib.contextmanager
def lock_file(file: Path) -> Iterator[IO[str] | None]:
    """Lock a file for a child process; yield the open file, or None if another process holds the lock."""
    with file.open("a", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield lock


def spawn(module: str, arguments: Sequence[str], lock: IO[str], **options: Any) -> subprocess.Popen[Any]:
    """Start ``python -m MODULE`` in a session of its own, where Ctrl-C in a terminal does not reach it. It holds the
    lock, an open file from ``lock_file``, until it ends. ``options`` are further ones of ``subprocess.Popen``."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(command, pass_fds=[lock.fileno()], start_new_session=True, **options)


def control_folder(output_dir: Path, name: str) -> Path:
    """Return the folder of a background process, with its request, lock, log and outcome."""
    return output_dir / ".background" / name


def start(
    folder: Path,
    commands: Sequence[Sequence[str]],
    sweep_folder: Path,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes] | None:
    """Start command lines of ``python -m sweeps`` in a background process, one after another until one fails; None if
    they already run.

    They are passed in a private file, since the arguments of a process are visible to every user of the machine. The
    log is linked in the sweep's folder. The environment is by default that of this process.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with lock_file(folder / LOCK_FILE) as lock:
        if lock is None:
            return None
        (folder / OUTCOME_FILE).unlink(missing_ok=True)
        write_json(folder / REQUEST_FILE, {"commands": commands, "sweep_folder": str(sweep_folder)})
        with open(folder / LOG_FILE, "ab", opener=private_opener) as log:
            process = spawn(
                ENTRY,
                [str(folder), str(lock.fileno())],
                lock,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=without_client_variables(environment or os.environ),
            )
        (folder / LOCK_FILE).write_text(str(process.pid), encoding="ascii")  # for `send`, while it still imports
        return process


def without_client_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without ``CLIENT_VARIABLES``, so that a command line works on this machine."""
    return {name: value for name, value in environment.items() if name not in CLIENT_VARIABLES}


def is_running(folder: Path) -> bool:
    """Whether the background process of a control folder is running."""
    if not (folder / LOCK_FILE).exists():
        return False
    with lock_file(folder / LOCK_FILE) as lock:
        return lock is None


def send(folder: Path, number: signal.Signals) -> None:
    """Send a signal to the background process, if it runs; SIGKILL goes to its whole session."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / LOCK_FILE).read_text(encoding="ascii"))
        if is_running(folder):
            os.killpg(pid, number) if number == signal.SIGKILL else os.kill(pid, number)


def release_lost_lock(folder: Path) -> None:
    """Remove the lock of a process on a failed machine: its process id means another process here, and shared storage
    may never release the lock."""
    (folder / LOCK_FILE).unlink(missing_ok=True)


def outcome(folder: Path) -> Outcome | None:
    """Return the outcome of a background process; None if it is still running or was killed."""
    try:
        return Outcome(**json.loads((folder / OUTCOME_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def log_tail(folder: Path) -> str:
    """Return the last lines of a background process's log."""
    try:
        return "\n".join((folder / LOG_FILE).read_text(encoding="utf-8", errors="replace").splitlines()[-5:])
    except OSError:
        return ""
