"""Files that may hold secrets: readable by their owner alone from the moment that they are made, whatever the umask."""

from __future__ import annotations

import os
from pathlib import Path

FILE_MODE, FOLDER_MODE = 0o600, 0o700


def opener(path: str, flags: int) -> int:
    """For ``open``: a file that it makes is its owner's alone."""
    return os.open(path, flags, FILE_MODE)


def make_private(path: Path) -> None:
    """Make an empty file, if there is none; one that others could read is closed to them."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE))
    if path.stat().st_mode & 0o077 and path.stat().st_uid == os.geteuid():
        path.chmod(FILE_MODE)
