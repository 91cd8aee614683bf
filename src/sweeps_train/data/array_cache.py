"""Arrays that cost time to make, such as tokenized text: made once a node, and mapped by all of its processes.

They are files of safetensors in the folder ``SWEEPS_CACHE``, by default ``~/.cache/sweeps``. Everything there can be
removed at any time, also while it is in use. What was used longest ago goes when a new file would make it too large.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

_log = logging.getLogger(__name__)

Arrays = dict[str, npt.NDArray[Any]]

LARGEST_FOLDER_GIB = 50.0
"""Size of a folder of arrays beyond which the files that were used longest ago are removed;
``SWEEPS_CACHE_GIB`` sets another."""

UNFINISHED = ".unfinished"
"""Ends the name of a file that is being written."""


def cached_arrays(kind: str, key: Any, make: Callable[[], Arrays]) -> Arrays:
    """The arrays under ``key``, read-only and mapped from a file, so that all processes of a node share their memory.

    The first process that asks makes them, while others that ask for the same wait. A file that is damaged is made
    anew. Where no file can be written, each process makes its own, with a warning.

    Args:
        kind: Folder in the cache: ``text``.
        key: Everything that the arrays depend on; of types that JSON knows.
        make: Makes them; its errors are passed on.
    """
    described = json.dumps(key, sort_keys=True)
    name = hashlib.sha256(described.encode()).hexdigest()[:32]
    try:
        file = cache_folder() / kind / f"{name}.safetensors"
        if (found := _read(file)) is not None:
            return found
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(file.with_suffix(".lock"))
        lock.acquire()
    except (OSError, NotImplementedError, RuntimeError) as error:  # no such folder; no locks there; no home
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


def cache_folder() -> Path:
    """``SWEEPS_CACHE``, or the user's folder for caches.

    Raises:
        RuntimeError: The user has no home.
    """
    given = os.environ.get("SWEEPS_CACHE")
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sweeps"


def _read(file: Path) -> Arrays | None:
    """The arrays of a file that is there and whole."""
    if not file.exists():
        return None
    try:
        with safe_open(file, framework="pt") as opened:  # it maps tensors of torch, and copies numpy's
            arrays = {name: opened.get_tensor(name).numpy() for name in opened.keys()}  # noqa: SIM118 - no dict
            sums = opened.metadata()
    except (OSError, SafetensorError) as error:
        _log.warning("%s is damaged (%s) and made anew", file, error)
        return None
    for name, array in arrays.items():
        array.flags.writeable = False
        if str(_checksum(array)) != sums.get(name):
            _log.warning("%s is damaged (its %s) and made anew", file, name)
            return None
    with contextlib.suppress(OSError):  # a cache that others have made, and this user can only read
        os.utime(file)  # by this time the oldest are found
    return arrays


def _write(file: Path, arrays: Arrays, described: str) -> None:
    unfinished = file.with_name(file.name + UNFINISHED)
    sums = {name: str(_checksum(array)) for name, array in arrays.items()}
    save_file(arrays, unfinished, metadata={**sums, "key": described})
    remove_oldest(file.parent, keep=unfinished)
    unfinished.replace(file)


def _checksum(array: npt.NDArray[Any]) -> int:
    """CRC-32, of several GB a second."""
    return zlib.crc32(np.ascontiguousarray(array).data)


def remove_oldest(folder: Path, keep: Path) -> None:
    """Makes room for a file or folder by removing others that were used longest ago. Those in use stay mapped: the
    system frees them when the last process is done with them."""
    space = float(os.environ.get("SWEEPS_CACHE_GIB", LARGEST_FOLDER_GIB)) * 2**30 - _size(keep)
    entries = [each for each in folder.iterdir() if each != keep and each.suffix != ".lock"]
    for entry in sorted(entries, key=lambda each: each.stat().st_mtime, reverse=True):
        space -= _size(entry)
        if space < 0:
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)


def _size(path: Path) -> int:
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)
