"""The folder on a machine for files that can be made or fetched again: tokenized data, copies of what is in an object
store."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """``SWEEPS_CACHE``, or else the user's cache folder.

    Raises:
        RuntimeError: The user has no home folder.
    """
    if configured := os.environ.get("SWEEPS_CACHE"):
        return Path(configured).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sweeps"
