"""The process behind ``--detach`` and behind the service's sweeps: ``python -m sweeps.cli.detached FOLDER LOCK``. See
``sweeps.service.subprocesses``, which starts it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import threading
import time
from pathlib import Path

from sweeps.cli import answered
from sweeps.files import replacing, write_json
from sweeps.folder import LOG_FILE
from sweeps.service.subprocesses import LOCK_FILE, OUTCOME_FILE, REQUEST_FILE

LOOK_EVERY_S = 0.5


def drive(folder: Path, lock: int) -> None:
    """Do what is asked, and write down how that ended.

    Args:
        folder: Of this process.
        lock: Its open lock; no process that this one starts may hold it, too, and outlive it.
    """
    os.set_inheritable(lock, False)  # noqa: FBT003 - it takes no keyword
    (folder / LOCK_FILE).write_text(str(os.getpid()), encoding="ascii")
    asked = json.loads((folder / REQUEST_FILE).read_text(encoding="utf-8"))
    threading.Thread(target=_show_log, args=(folder, Path(asked["sweep_folder"])), daemon=True).start()
    status, error, document = 0, None, None
    for command in asked["commands"]:
        sys.argv = ["sweeps", *command]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            status, error = answered(command, is_log=True)
        with contextlib.suppress(ValueError):
            document = json.loads(printed.getvalue())
        if status:
            break
    write_json(folder / OUTCOME_FILE, {"status": status, "error": error, "document": document})
    sys.exit(status)


def _show_log(folder: Path, sweep_folder: Path) -> None:
    """Let the sweep's folder have the log, too, once there is one."""
    while not sweep_folder.is_dir():
        time.sleep(LOOK_EVERY_S)
    with contextlib.suppress(OSError), replacing(sweep_folder / LOG_FILE) as link:  # on another disk, or gone again
        link.hardlink_to(folder / LOG_FILE)


if __name__ == "__main__":
    drive(Path(sys.argv[1]), int(sys.argv[2]))
