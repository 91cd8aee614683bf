"""Creation of SQLite stores by one process at a time, and by copying an empty one that MLflow created on this machine
before, because MLflow's migrations take over a second."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from sweeps.storage.location import empty_store_copy

MAKE_TABLES_WITHIN_S = 60
"""Maximum seconds to wait for another process that creates the tables of a store."""
POLL_S = 0.05
FOREIGN = ("runs", "registered_models")
"""Tables that are empty in a new store."""


@contextlib.contextmanager
def making_tables(path: Path | None, version: str) -> Iterator[None]:
    """Let only one process at a time connect to an SQLite store, because two processes that create its tables would
    collide. A new store is copied from one that this MLflow version created before."""
    if path is None:
        yield
        return
    with _locked(path.absolute().parent), _made_from_copy(path, version):
        yield


@contextlib.contextmanager
def _made_from_copy(path: Path, version: str) -> Iterator[None]:
    """Create a missing store from the kept copy, if there is one for this version of MLflow; otherwise keep a copy of
    the store that MLflow creates in the block. After any error here, MLflow creates the store itself."""
    is_new = not path.exists()
    with contextlib.suppress(OSError, RuntimeError, sqlite3.Error):
        if is_new and (kept := empty_store_copy(version)).exists():
            _place(kept.read_bytes(), path)
            is_new = False
    yield
    with contextlib.suppress(OSError, RuntimeError, sqlite3.Error):
        if is_new:
            _keep(path, empty_store_copy(version))


def _keep(path: Path, kept: Path) -> None:
    """Keep a copy of a store that MLflow has just created, without its first experiment, whose artifact folder is
    beside this store."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        copy = Path(folder) / "mlflow.db"
        with closing(sqlite3.connect(path)) as store, closing(sqlite3.connect(copy)) as empty:
            store.backup(empty)
            if any(empty.execute(f"SELECT 1 FROM {table}").fetchone() for table in FOREIGN):  # noqa: S608 - ours
                return  # another process uses it already
            empty.execute("DELETE FROM experiments")
            empty.commit()
        copy.rename(kept)


def _place(content: bytes, path: Path) -> None:
    """Write a file atomically, unless another process has created it in the meantime."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
        whole = Path(folder) / path.name
        whole.write_bytes(content)
        with contextlib.suppress(FileExistsError):
            os.link(whole, path)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, or of its nearest existing parent, which leaves no file there. Continue without the
    lock if the file system does not support locks, or another process holds it for too long."""
    existing = next((each for each in (folder, *folder.parents) if each.is_dir()), Path("/"))
    try:
        descriptor = os.open(existing, os.O_RDONLY)
    except OSError:  # it cannot be read
        yield
        return
    try:
        deadline = time.monotonic() + MAKE_TABLES_WITHIN_S
        while not _has_lock(descriptor) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        yield
    finally:
        os.close(descriptor)


def _has_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
