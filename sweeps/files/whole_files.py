"""Files that are written completely or not at all, and files that only their owner can read."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweeps.files.checksums import with_checksum

FILE_MODE, FOLDER_MODE = 0o600, 0o700
UNFINISHED = ".unfinished"
"""Suffix of a file or folder while it is being written."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write a file or a folder under a temporary name, and rename it to ``path`` when the block succeeds.

    Readers of ``path`` see the old content or the new one, never a part. If the block raises, ``path`` is unchanged and
    the temporary file is removed; a file that a crash has left is removed by the next call. One writer at a time.

    Args:
        path: The file or folder to replace; its parent folder must exist.

    Yields:
        The temporary path beside it, where nothing exists yet.

    Raises:
        OSError: The file or folder cannot be renamed.
    """
    unfinished, replaced = path.with_name(path.name + UNFINISHED), path.with_name(f"{path.name}.replaced")
    _remove(unfinished)
    try:
        yield unfinished
        if path.is_dir():  # rename replaces a file, but no folder with files in it
            _remove(replaced)
            path.rename(replaced)
        unfinished.rename(path)
        _remove(replaced)
    finally:
        _remove(unfinished)


def write_json(path: Path, document: Any, indent: int | None = None, *, checksum: bool = False) -> None:
    """Write a private JSON file, completely or not at all. The file has reached the disk when this returns.

    Args:
        path: The file.
        document: Content of the file.
        indent: Spaces for each level; default: one line.
        checksum: Add a checksum to an object, which ``sweeps.files.checksums.parsed`` checks.

    Raises:
        OSError: The file cannot be written.
    """
    text = json.dumps(document, indent=indent).encode()
    with replacing(path) as unfinished, open(unfinished, "wb", opener=private_opener) as file:
        file.write(with_checksum(text) if checksum else text)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names of the files in a folder, have reached the disk, if the file
    system can do so.

    Raises:
        OSError: They have not.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # of folders on file systems such as CIFS
            raise
    finally:
        os.close(descriptor)


def private_opener(path: str, flags: int) -> int:
    """Opener for ``open`` that creates files readable only by their owner, regardless of the umask."""
    return os.open(path, flags, FILE_MODE)


def make_private(path: Path) -> None:
    """Create an empty file if there is none, and remove others' permissions if the file belongs to the user."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE))
    if path.stat().st_mode & 0o077 and path.stat().st_uid == os.geteuid():
        path.chmod(FILE_MODE)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
