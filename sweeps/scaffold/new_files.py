"""Writes new files, and never overwrites one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sweeps.errors import UserError


def write_new_files(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write either all files or none.

    Args:
        folder: Made if it does not exist.
        texts: Content of each file by its path below the folder.

    Raises:
        UserError: A file exists, or cannot be written.
    """
    paths = [folder / name for name in texts]
    existing = [str(path) for path in paths if path.exists() or path.is_symlink()]
    if existing:
        them, exist = ("it", "exists") if len(existing) == 1 else ("them", "exist")
        raise UserError(
            f"{', '.join(existing)} already {exist}, and no file is overwritten; "
            f"remove {them}, or choose another folder"
        )
    try:
        for path, text in zip(paths, texts.values(), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:  # x: also a file that appeared since the check is kept
                file.write(text)
    except OSError as error:
        raise UserError(f"{error.filename or folder}: cannot be written ({error.strerror})") from None
    return paths
