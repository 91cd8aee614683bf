"""New MLflow stores: copies of an empty one that MLflow has made, since its migrations take seconds."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

SHARED = "SWEEPS_TESTS_SHARED"
"""Environment variable with the folder that all processes of a run of the tests share."""


def empty_store() -> Path:
    """The file of an empty store."""
    from sweeps.tracking.client import connect

    return made_once("empty-mlflow.db", lambda path: connect(f"sqlite:///{path}"))


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """A file in the shared folder: the first process that asks makes it, and others wait."""
    path = Path(os.environ[SHARED]) / name
    if not path.exists():
        with FileLock(path.with_suffix(".lock")):
            if not path.exists():
                unfinished = path.with_suffix(".unfinished")
                make(unfinished)
                unfinished.rename(path)
    return path


def make_store(path: Path) -> None:
    """Make a store, if there is a folder and no store yet."""
    if path.parent.is_dir() and not path.exists():
        shutil.copy(empty_store(), path)


class RecordedStore:
    """A folder with a store of recorded sweeps, and a copy from which each test gets it as it was: paths in the folder
    are in the store, and to record sweeps again takes seconds."""

    def __init__(self, folder: Path, record: Callable[[str], None]) -> None:
        """
        Args:
            folder: New folder for both.
            record: Records the sweeps in a store, given by its URI, and in the working folder.
        """
        self.folder, self._copy = folder / "recorded", folder / "copy"
        self.folder.mkdir()
        make_store(self.folder / "mlflow.db")
        with contextlib.chdir(self.folder):
            record(self.uri)
        shutil.copytree(self.folder, self._copy)

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.folder}/mlflow.db"

    def restore(self) -> str:
        """Undo all changes, and return the store's URI."""
        for changed in self.folder.iterdir():
            if changed.is_dir():
                shutil.rmtree(changed)
        shutil.copytree(self._copy, self.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("mlflow.db"))
        copy, own = (sqlite3.connect(each / "mlflow.db") for each in (self._copy, self.folder))
        with contextlib.closing(copy), contextlib.closing(own):
            copy.backup(own)  # into the same file, which MLflow has open
        return self.uri
