"""Access to the file of an SQLite tracking store: queries, and a check before MLflow opens it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from sweeps.compat.mlflow import TRIED_SCHEMAS
from sweeps.errors import TrackingUnreachable
from sweeps.tracking.uris import sqlite_path

USE_ANOTHER = "name another store with --tracking-uri, tracking.uri or MLFLOW_TRACKING_URI"
MLFLOW_TABLES = {"alembic_version", "experiments", "runs"}
"""Tables that MLflow creates first in a new store."""
OPTUNA_TABLE = "studies"
SHOWN_TABLES = 3
WAIT_FOR_LOCK_S = 20.0
"""Seconds to wait for other writers, as MLflow does."""


class _Locked(TrackingUnreachable):
    """Raised when another process locks the file for longer than SQLite waits."""


def queryable_file(uri: str) -> Path | None:
    """Return the file of an SQLite store whose tables can be queried directly; None for all other stores, which are
    read through MLflow's client.

    The columns of MLflow's tables are private to it. A store is queried only if its tables have a version that was
    tested, or if it has no runs: MLflow may be creating it, and passes through all versions.

    Raises:
        TrackingUnreachable: See ``reading``.
    """
    path = sqlite_path(uri)
    if path is None or not path.exists():
        return path
    with reading(path) as database:
        tables = _tables(database)
        if "alembic_version" not in tables:
            return path
        if has_tried_tables(database) or ("runs" in tables and not database.execute("SELECT 1 FROM runs").fetchone()):
            return path
    return None


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing store for queries, and close it at the end of the block.

    Raises:
        TrackingUnreachable: The file is not a database, is damaged or locked, or has other tables than MLflow's.
    """
    try:
        with closing(_open(path)) as database:
            _check_tables(path, database)
            yield database
    except sqlite3.DatabaseError as error:
        kind = _Locked if "locked" in str(error) else TrackingUnreachable
        raise kind(f"sqlite:///{path}: {_explained(path, error)}") from error


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing store to write to it in transactions, and close it at the end of the block; a transaction that
    is not complete then is undone."""
    uri = f"{_source(path)}?mode=rw"
    with closing(sqlite3.connect(uri, timeout=WAIT_FOR_LOCK_S, isolation_level=None, uri=True)) as database:
        yield database


def has_tried_tables(database: sqlite3.Connection) -> bool:
    """Whether MLflow's tables have a version with which our statements were tested."""
    return {version for (version,) in database.execute("SELECT version_num FROM alembic_version")} <= TRIED_SCHEMAS


def check_sqlite_file(path: Path) -> None:
    """Check a file before MLflow opens it, because MLflow would retry for a minute, or write its tables into another
    program's database. A missing file is accepted, and a locked one, for which MLflow waits.

    Raises:
        TrackingUnreachable: See ``reading``.
    """
    if path.exists():
        with suppress(_Locked), reading(path):
            pass


def _open(path: Path) -> sqlite3.Connection:
    # Read-only: a mistyped path must not create a file.
    database = sqlite3.connect(f"{_source(path)}?mode=ro", uri=True)
    try:
        database.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        # A driver that was killed in a transaction leaves SQLite's journal, which only a writer may roll back.
        database.close()
        return sqlite3.connect(f"{_source(path)}?mode=rw", uri=True)
    except sqlite3.DatabaseError:
        database.close()
        raise
    return database


def _source(path: Path) -> str:
    return f"file:{quote(str(path.absolute()))}"


def _check_tables(path: Path, database: sqlite3.Connection) -> None:
    tables = _tables(database)
    if not tables or (tables & MLFLOW_TABLES and OPTUNA_TABLE not in tables):
        return
    shown = ", ".join(sorted(tables)[:SHOWN_TABLES]) + (", ..." if len(tables) > SHOWN_TABLES else "")
    raise TrackingUnreachable(f"sqlite:///{path}: is not an MLflow store: its tables are {shown}; {USE_ANOTHER}")


def _tables(database: sqlite3.Connection) -> set[str]:
    return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _explained(path: Path, error: sqlite3.DatabaseError) -> str:
    text = str(error)
    if path.is_dir():
        return f"is a folder, not a database file; {USE_ANOTHER}"
    if "locked" in text:
        return f"another process has locked it ({text}); try again when that has ended"
    if "no such column" in text or "no such table" in text:
        return (
            f"is not an MLflow store, or is of an old version ({text}); "
            f"`mlflow db upgrade sqlite:///{path}` brings an old one up to date, or {USE_ANOTHER}"
        )
    if "unable to open" in text or "readonly" in text:
        return f"cannot be opened ({text}); check that the folder exists, and that you may read and write in it"
    return f"is not an SQLite database, or is damaged ({text}); restore it from a backup, or {USE_ANOTHER}"
