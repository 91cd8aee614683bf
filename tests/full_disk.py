"""A full disk."""

from __future__ import annotations

import contextlib
from pathlib import Path


def fill(folder: Path) -> None:
    """Fill the disk of a folder."""
    with (folder / "filler").open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 9, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
