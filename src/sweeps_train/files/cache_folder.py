"""The local folder for files that can be recomputed or downloaded again, such as tokenized data."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return ``SWEEPS_CACHE`` if it is set, else the folder ``sweeps`` in the user's cache folder.

    Raises:
        RuntimeError: The user has no home folder.
    """
    if configured := os.environ.get("SWEEPS_CACHE"):
        return Path(configured).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sweeps"
