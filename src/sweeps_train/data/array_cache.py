"""A disk cache of expensive arrays, such as tokenized text: computed once per node, memory-mapped by all its processes.

Entries are safetensors files in the folder ``SWEEPS_CACHE``, by default ``~/.cache/sweeps``. All of them may be deleted
at any time, also while in use. The least recently used ones are deleted when a new one would exceed the size limit.
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
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from sweeps_train.files.atomic_write import atomic_write
from sweeps_train.files.cache_folder import cache_folder

_log = logging.getLogger(__name__)

Arrays = dict[str, npt.NDArray[Any]]

LARGEST_FOLDER_GIB = 50.0
"""Size of a folder in GiB beyond which the least recently used files are deleted; ``SWEEPS_CACHE_GIB`` overrides it."""


def cached_arrays(kind: str, key: Any, make: Callable[[], Arrays]) -> Arrays:
    """Return the arrays with this key, read-only and mapped from a file, so that all processes of a node share their
    memory.

    The first process that asks makes them, while others wait. A damaged file is made again. If no file can be written,
    each process makes its own arrays, with a warning.

    Args:
        kind: Folder in the cache, such as ``text``.
        key: Everything that the arrays depend on, as JSON values.
        make: Makes the arrays; its errors are passed on.

    Example:
        >>> import tempfile
        >>> os.environ["SWEEPS_CACHE"] = tempfile.mkdtemp()
        >>> cached_arrays("squares", {"count": 4}, lambda: {"values": np.arange(4) ** 2})["values"]
        array([0, 1, 4, 9])
    """
    described, name = entry_name(key)
    try:
        file = cache_folder() / kind / f"{name}.safetensors"
        if (found := _read(file)) is not None:
            return found
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(file.with_suffix(".lock"))
        lock.acquire()
    except (OSError, NotImplementedError, RuntimeError) as error:  # no such folder, no locks in it, or no home
        _log.warning("no cache for %s (%s); set SWEEPS_CACHE to a folder that can be written", kind, error)
        return make()
    try:
        if (found := _read(file)) is not None:  # another process has made it meanwhile
            return found
        made = make()
        try:
            _write(file, made, described)
        except (OSError, SafetensorError) as error:
            _log.warning("%s cannot be written (%s); set SWEEPS_CACHE to a folder with space", file, error)
            return made
    finally:
        lock.release()
    found = _read(file)
    return found if found is not None else made


def entry_name(key: Any) -> tuple[str, str]:
    """Return a key as JSON, and its hash, which names the entry."""
    described = json.dumps(key, sort_keys=True)
    return described, hashlib.sha256(described.encode()).hexdigest()[:32]


def _read(file: Path) -> Arrays | None:
    """Return the arrays of a file; None if it does not exist or is damaged."""
    if not file.exists():
        return None
    try:
        with safe_open(file, framework="pt") as opened:  # torch tensors are mapped, numpy arrays would be copied
            arrays = {name: opened.get_tensor(name).numpy() for name in opened.keys()}  # noqa: SIM118 - no dict
            sums = opened.metadata()
    except (OSError, SafetensorError) as error:
        _log.warning("%s is damaged (%s) and is rebuilt", file, error)
        return None
    for name, array in arrays.items():
        array.flags.writeable = False
        if str(_checksum(array)) != sums.get(name):
            _log.warning("%s is damaged (its %s) and is rebuilt", file, name)
            return None
    mark_used(file)
    return arrays


def _write(file: Path, arrays: Arrays, described: str) -> None:
    sums = {name: str(_checksum(array)) for name, array in arrays.items()}
    with atomic_write(file) as temporary:
        save_file(arrays, temporary, metadata={**sums, "key": described})
        remove_oldest(file.parent, keep=temporary)


def _checksum(array: npt.NDArray[Any]) -> int:
    """Return the CRC-32 of an array, computed at several GB per second."""
    return zlib.crc32(np.ascontiguousarray(array).data)


def mark_used(entry: Path) -> None:
    """Update the time of last use, by which the least recently used entries are found."""
    now = time.time_ns()  # the file system's own clock may stand still for 4 ms
    with contextlib.suppress(OSError):  # another user's cache may be read-only
        os.utime(entry, ns=(now, now))


def remove_oldest(folder: Path, keep: Path) -> None:
    """Delete the least recently used entries of a folder, except ``keep``, until it is within the size limit.

    Processes that have mapped a deleted file can still use it; the system frees it after the last one.
    """
    space = float(os.environ.get("SWEEPS_CACHE_GIB", LARGEST_FOLDER_GIB)) * 2**30 - _size(keep)
    entries = []
    for entry in folder.iterdir():
        with contextlib.suppress(OSError):  # another process has just renamed or deleted it
            if entry != keep and entry.suffix != ".lock":
                entries.append((entry.stat().st_mtime_ns, _size(entry), entry))
    for _, size, entry in sorted(entries, reverse=True):
        space -= size
        if space < 0:
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)


def _size(path: Path) -> int:
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)
