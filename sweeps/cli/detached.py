"""Background process of ``--detach`` and of the service: ``python -m sweeps.cli.detached FOLDER LOCK``, started by
``sweeps.service.subprocesses``."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import threading
import time
from pathlib import Path

from sweeps.cli import run_command
from sweeps.files.whole_files import replacing, write_json
from sweeps.folders.sweep_folder import LOG_FILE
from sweeps.service.subprocesses import LOCK_FILE, OUTCOME_FILE, REQUEST_FILE

POLL_EVERY_S = 0.5


def run_request(folder: Path, lock: int) -> None:
    """Run the commands of the folder's request file, and write their outcome.

    Args:
        folder: Folder of this process.
        lock: File descriptor of its lock; a child process must not inherit it, since it could outlive this one.
    """
    os.set_inheritable(lock, False)  # noqa: FBT003 - it takes no keyword
    (folder / LOCK_FILE).write_text(str(os.getpid()), encoding="ascii")
    asked = json.loads((folder / REQUEST_FILE).read_text(encoding="utf-8"))
    threading.Thread(target=_link_log, args=(folder, Path(asked["sweep_folder"])), daemon=True).start()
    status, error, document = 0, None, None
    for command in asked["commands"]:
        sys.argv = ["sweeps", *command]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            status, error = run_command(command, is_log=True)
        with contextlib.suppress(ValueError):
            document = json.loads(printed.getvalue())
        if status:
            break
    write_json(folder / OUTCOME_FILE, {"status": status, "error": error, "document": document})
    sys.exit(status)


def _link_log(folder: Path, sweep_folder: Path) -> None:
    """Link the log into the sweep's folder as soon as that folder exists."""
    while not sweep_folder.is_dir():
        time.sleep(POLL_EVERY_S)
    with contextlib.suppress(OSError), replacing(sweep_folder / LOG_FILE) as link:  # on another disk, or removed again
        link.hardlink_to(folder / LOG_FILE)


if __name__ == "__main__":
    run_request(Path(sys.argv[1]), int(sys.argv[2]))
