"""The file of an SQLite tracking store: opened to read, and checked before MLflow opens it to write."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from sweeps.errors import TrackingUnreachable

ANOTHER = "name another store with --tracking-uri, tracking.uri or MLFLOW_TRACKING_URI"
CREATED_FIRST = {"alembic_version", "experiments", "runs"}
"""Tables of MLflow; it makes a new store with the first of them at once."""
OF_OPTUNA = "studies"
SHOWN_TABLES = 3


class _Locked(TrackingUnreachable):
    """Another process writes for longer than SQLite waits."""


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that reads an existing store, closed at the end.

    Raises:
        TrackingUnreachable: The file is no database, is damaged, is locked, or holds something else than MLflow's
            tables.
    """
    try:
        with closing(_open(path)) as database:
            _check_tables(path, database)
            yield database
    except sqlite3.DatabaseError as error:
        kind = _Locked if "locked" in str(error) else TrackingUnreachable
        raise kind(f"sqlite:///{path}: {_explained(path, error)}") from error


def check_sqlite_file(path: Path) -> None:
    """Check a file that MLflow is about to open: it retries for a minute where it cannot, and writes its tables into
    any database. A file that does not exist is fine, and one that is locked, for which MLflow waits.

    Raises:
        TrackingUnreachable: See ``reading``.
    """
    if path.exists():
        with suppress(_Locked), reading(path):
            pass


def _open(path: Path) -> sqlite3.Connection:
    # Opened without the right to create: a mistaken path must not become a file.
    source = f"file:{quote(str(path.absolute()))}"
    database = sqlite3.connect(f"{source}?mode=ro", uri=True)
    try:
        database.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        # A driver that was killed within a transaction leaves a journal, which only a writer may roll back.
        database.close()
        return sqlite3.connect(f"{source}?mode=rw", uri=True)
    except sqlite3.DatabaseError:
        database.close()
        raise
    return database


def _check_tables(path: Path, database: sqlite3.Connection) -> None:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables or (tables & CREATED_FIRST and OF_OPTUNA not in tables):
        return
    shown = ", ".join(sorted(tables)[:SHOWN_TABLES]) + (", ..." if len(tables) > SHOWN_TABLES else "")
    raise TrackingUnreachable(f"sqlite:///{path}: is no MLflow store: its tables are {shown}; {ANOTHER}")


def _explained(path: Path, error: sqlite3.DatabaseError) -> str:
    text = str(error)
    if path.is_dir():
        return f"is a folder, and no database file; {ANOTHER}"
    if "locked" in text:
        return f"another process holds it ({text}); try again when that has ended"
    if "no such column" in text or "no such table" in text:
        return (
            f"is no MLflow store, or of an old version ({text}); "
            f"`mlflow db upgrade sqlite:///{path}` brings an old one up to date, or {ANOTHER}"
        )
    if "unable to open" in text or "readonly" in text:
        return f"cannot be opened ({text}); check that the folder exists, and that you may read and write in it"
    return f"is no SQLite database, or a damaged one ({text}); restore it from a backup, or {ANOTHER}"
