"""Sizes of files on this machine."""

from __future__ import annotations

from pathlib import Path


def size_of(path: str) -> int | None:
    """Return the bytes of a local file, or of all files in a folder; None if it does not exist."""
    local = Path(path).expanduser()
    if local.is_file():
        return local.stat().st_size
    if local.is_dir():
        return sum(file.stat().st_size for file in local.rglob("*") if file.is_file())
    return None
