"""A disk cache of expensive arrays, such as tokenized text: computed once per node, memory-mapped by all its processes.

An entry is a folder with a ``.npy`` file for each array, in the folder ``SWEEPS_CACHE``, by default
``~/.cache/sweeps``. All of them may be deleted at any time, also while in use. The least recently used ones are deleted
when a new one would exceed the size limit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from filelock import FileLock

from sweeps_train.files.atomic_write import UNFINISHED, atomic_write
from sweeps_train.files.cache_folder import cache_folder

_log = logging.getLogger(__name__)

Arrays = dict[str, npt.NDArray[Any]]

LARGEST_FOLDER_GIB = 50.0
"""Size of a kind's folder in GiB beyond which the least recently used entries are deleted; ``SWEEPS_CACHE_GIB``
overrides it."""

_KEY_FILE = "key.json"
"""File with everything that an entry depends on, and the checksums of its arrays; written last."""


def cached_arrays(kind: str, key: Any, write: Callable[[Path], None], *, has_checksums: bool) -> Arrays:
    """Return the arrays with this key, read-only and mapped from files, so that all processes of a node share their
    memory.

    The first process that asks makes them, while others wait. A damaged entry is made again.

    Args:
        kind: Folder in the cache, such as ``text``.
        key: Everything that the arrays depend on, as JSON values.
        write: Writes each array into a folder, as ``NAME.npy``. In the folder it finds the files of a process that died
            before it had written all. Its errors are passed on.
        has_checksums: Whether all arrays are verified when they are opened, which reads them.

    Raises:
        OSError: The cache cannot be written.
        RuntimeError: The folder of the cache has no locks, or is unknown, as the user has no home.
        ValueError: ``SWEEPS_CACHE_GIB`` is no number.

    Example:
        >>> import tempfile
        >>> os.environ["SWEEPS_CACHE"] = tempfile.mkdtemp()
        >>> squares = np.arange(4) ** 2
        >>> cached_arrays(
        ...     "squares", {"count": 4}, lambda folder: np.save(folder / "values", squares), has_checksums=True
        ... )
        {'values': array([0, 1, 4, 9])}
    """
    hashed = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
    folder = cache_folder() / kind / hashed
    if (found := _read(folder)) is not None:
        return found
    limit = _limit()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder):
        if (found := _read(folder)) is not None:  # another process has made it meanwhile
            return found
        with atomic_write(folder) as temporary:
            temporary.mkdir(exist_ok=True)
            write(temporary)
            checksums = {file.stem: _checksum(file) if has_checksums else None for file in temporary.glob("*.npy")}
            about = json.dumps({"key": key, "arrays": checksums}, sort_keys=True)
            (temporary / _KEY_FILE).write_text(about + "\n", encoding="utf-8")
            _remove_oldest(folder.parent, limit, keep=temporary)
            shutil.rmtree(folder, ignore_errors=True)  # it is damaged, if it exists
        return _map(folder)


def _limit() -> float:
    """Return the maximum size of a kind's folder in bytes."""
    given = os.environ.get("SWEEPS_CACHE_GIB", LARGEST_FOLDER_GIB)
    try:
        return float(given) * 2**30
    except ValueError as error:
        raise ValueError(f"SWEEPS_CACHE_GIB={given}: must be a number of GiB, such as 50") from error


def _lock(entry: Path) -> FileLock:
    """Return the lock of the process that makes an entry, whether the entry has its final name or a temporary one."""
    return FileLock(entry.with_suffix(".lock"))


def _read(folder: Path) -> Arrays | None:
    """Return the arrays of an entry; None if it does not exist or is damaged."""
    if not (folder / _KEY_FILE).exists():
        return None
    try:
        arrays = _map(folder)
    except Exception as error:  # noqa: BLE001 - flipped bits may be read as anything
        _log.warning("%s is damaged (%s) and is rebuilt", folder, error)
        return None
    now = time.time_ns()  # the file system's own clock may stand still for 4 ms
    with contextlib.suppress(OSError):  # another user's cache may be read-only
        os.utime(folder, ns=(now, now))
    return arrays


def _map(folder: Path) -> Arrays:
    checksums = json.loads((folder / _KEY_FILE).read_text(encoding="utf-8"))["arrays"]
    for name, checksum in checksums.items():
        if checksum not in (None, _checksum(folder / f"{name}.npy")):
            raise OSError(f"its {name} have changed")
    # As plain arrays: every slice of a memmap is a memmap, which costs microseconds.
    return {name: np.load(folder / f"{name}.npy", mmap_mode="r").view(np.ndarray) for name in checksums}


def _checksum(file: Path) -> int:
    """Return the CRC-32 of a file, computed at several GB per second from its mapped pages."""
    return zlib.crc32(np.memmap(file, np.uint8, mode="r").data)


def _remove_oldest(folder: Path, limit: float, keep: Path) -> None:
    """Delete the least recently used entries of a folder, except ``keep`` and those that are being made, until it is
    within the size limit.

    Processes that have mapped a deleted file can still use it; the system frees it after the last one.
    """
    space = limit - _size(keep)
    entries = []
    for entry in folder.iterdir():
        with contextlib.suppress(OSError):  # another process has just renamed or deleted it
            if entry != keep and entry.suffix != ".lock":
                entries.append((entry.stat().st_mtime_ns, _size(entry), entry))
    for _, size, entry in sorted(entries, reverse=True):
        space -= size
        if space < 0:
            if entry.suffix == UNFINISHED:
                with contextlib.suppress(OSError), _lock(entry).acquire(timeout=0):
                    shutil.rmtree(entry, ignore_errors=True)
            elif entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)  # of an earlier release


def _size(path: Path) -> int:
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)
