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

UNFINISHED = ".unfinished"


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
                unfinished = path.with_suffix(UNFINISHED)
                make(unfinished)
                unfinished.rename(path)
    return path


def make_store(path: Path) -> None:
    """Make a store, if there is a folder and no store yet."""
    if path.parent.is_dir() and not path.exists():
        shutil.copy(empty_store(), path)


def copy_recorded(name: str, record: Callable[[str], object], folder: Path) -> str:
    """Copy recorded sweeps into a folder, with all paths changed to that folder; return the URI of the copied store.
    They are recorded once for all processes of a run, since that takes seconds. ``record`` gets the URI of a store, and
    works in a folder beside it."""

    def make(unfinished: Path) -> None:
        (unfinished / "elsewhere").mkdir(parents=True)
        make_store(unfinished / "mlflow.db")
        with contextlib.chdir(unfinished / "elsewhere"):
            record(f"sqlite:///{unfinished}/mlflow.db")

    original = made_once(name, make)
    old, new = str(original.with_suffix(UNFINISHED)), str(folder)
    shutil.copytree(original, folder, dirs_exist_ok=True)
    for file in original.rglob("*"):
        if file.is_file() and not file.name.startswith("mlflow.db") and old.encode() in (held := file.read_bytes()):
            (folder / file.relative_to(original)).write_bytes(held.replace(old.encode(), new.encode()))
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as store, store:
        for (table,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for _, field, kind, *_ in store.execute(f"PRAGMA table_info('{table}')").fetchall():
                if "CHAR" in kind or "TEXT" in kind:
                    change = f'UPDATE "{table}" SET "{field}" = replace("{field}", ?1, ?2) WHERE instr("{field}", ?1)'
                    store.execute(change, (old, new))
    return f"sqlite:///{folder}/mlflow.db"


class RecordedStore:
    """A folder with a store of recorded sweeps, which is restored from a copy for each test: recording them again would
    take seconds, and the store has paths in the folder."""

    def __init__(self, folder: Path, record: Callable[[str], None]) -> None:
        """Record sweeps in a store, whose URI ``record`` gets, and in its working folder; both are in a new folder."""
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
