"""Folders left behind by a driver that was killed before its search began."""

from __future__ import annotations

import time
from pathlib import Path

from sweeps.files.whole_files import UNFINISHED
from sweeps.folders.driver_lock import DRIVER_FILE, DRIVER_LOCK, driver_was_killed, is_held, last_heartbeat
from sweeps.folders.sweep_folder import (
    COPY_FILE,
    GROUPS_FOLDER,
    LOG_FILE,
    MEASURED_FOLDER,
    RAY_TRAIN_FOLDER,
    SWEEP_FILE,
)
from sweeps.runtime.shared_folder import MARK
from sweeps.search.samplers.saved_trials import EARLIER_FILE
from sweeps.storage.state_mirror import SESSION_FILE
from sweeps.tracking.journal import JOURNAL_FILE, POSITION_FILE
from sweeps.tracking.sweep_run import PARENT_FILE

_BEFORE_THE_SEARCH = {
    *(DRIVER_LOCK, DRIVER_FILE, LOG_FILE, SWEEP_FILE, COPY_FILE, JOURNAL_FILE, POSITION_FILE, EARLIER_FILE),
    *(SESSION_FILE, MARK, PARENT_FILE, GROUPS_FOLDER, MEASURED_FOLDER, RAY_TRAIN_FOLDER),
}

JUST_MADE_S = 60.0
"""Seconds for which an empty folder is left to the driver that has made it and is about to claim it."""


def is_unstarted(folder: Path) -> bool:
    """Whether a folder contains only files that a driver writes before its search, and no driver on this machine holds
    it."""
    if not folder.is_dir():
        return False
    # On NFS a removed file that is still open has another name.
    names = {path.name.removesuffix(UNFINISHED) for path in folder.iterdir() if not path.name.startswith(".nfs")}
    return names <= _BEFORE_THE_SEARCH and not is_held(folder)


def was_left_unstarted(folder: Path) -> bool:
    """Whether a folder was left by a driver that was killed before its search began. False while a driver on another
    machine may still run, or a driver is about to claim the folder.

    If MLflow has no run of the sweep either, nothing is lost with the folder, and the name is free.
    """
    if not is_unstarted(folder):
        return False
    is_empty = not any(folder.iterdir())
    is_being_taken = is_empty and time.time() - folder.stat().st_mtime < JUST_MADE_S
    return not is_being_taken and (last_heartbeat(folder) is None or driver_was_killed(folder))
