"""Connections and transactions of the service's database: SQLite on one machine, PostgreSQL for several services."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, func, make_url, select
from sqlalchemy.exc import SQLAlchemyError

from sweeps.errors import ConfigError
from sweeps.files.whole_files import make_private
from sweeps.service.database.postgresql import postgresql_engine
from sweeps.service.database.schema_version import is_current, upgrade
from sweeps.service.database.tables import metadata
from sweeps.service.database.timeouts import DEFAULT_S, UPGRADE_S, timeout_s, waiting_at_most
from sweeps.texts.uri_passwords import redact_uri

MAKING_TABLES, CLAIMING = 0x53574545, 0x53574546
"""Keys of PostgreSQL's advisory locks: arbitrary numbers, the same in every service."""


def open_database(url: str) -> Engine:
    """Open the database at an address of SQLAlchemy (``sqlite:///outputs/service.db``, ``postgresql+psycopg://...``);
    create the tables of a new one, and upgrade one of an earlier release.

    Raises:
        ConfigError: The database cannot be opened, or lacks columns.
        NewerVersion: A later release has upgraded the database.
    """
    try:
        return _open(url)
    except (SQLAlchemyError, OSError, ModuleNotFoundError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"database={redact_uri(url)}: cannot be opened ({redact_uri(reason)})") from None


@contextmanager
def opened_database(url: str) -> Iterator[Engine]:
    """Open the database as ``open_database`` does, and close its connections at the end."""
    engine = open_database(url)
    try:
        yield engine
    finally:
        engine.dispose()


def database_exists(url: str) -> bool:
    """Whether the SQLite file exists; always true for a server, which is not contacted."""
    parts = make_url(url)
    return parts.get_backend_name() != "sqlite" or Path(str(parts.database)).is_file()


def _open(url: str) -> Engine:
    parts = make_url(url)
    if parts.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": DEFAULT_S, "check_same_thread": False})
        if parts.database not in {None, "", ":memory:"}:
            file = Path(str(parts.database))
            file.parent.mkdir(parents=True, exist_ok=True)
            make_private(file)  # SQLite gives its journals the same mode
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    elif parts.get_driver_name() == "psycopg":
        engine = postgresql_engine(parts)
    else:
        engine = create_engine(url, pool_pre_ping=True)
    try:
        with engine.connect() as connection:
            current = is_current(connection, url)
        if not current:
            with waiting_at_most(UPGRADE_S), writing(engine) as connection:
                lock(connection, MAKING_TABLES)  # otherwise two services could both create a missing table
                upgrade(connection, url)
    except BaseException:
        engine.dispose()
        raise
    return engine


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that writes. SQLite has one writer at a time."""
    with engine.connect().execution_options(sweeps_writes=True) as connection, connection.begin():
        yield connection


def lock(connection: Connection, key: int) -> None:
    """Hold an advisory lock until the transaction ends. SQLite needs none: it has one writer at a time."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(key)))


def check_writable(connection: Connection) -> None:
    """Check that no table is locked against writers. An SQLite file is locked as a whole."""
    if connection.dialect.name == "postgresql":
        names = ", ".join(connection.dialect.identifier_preparer.quote(name) for name in metadata.tables)
        connection.exec_driver_sql(f"LOCK TABLE {names} IN ROW EXCLUSIVE MODE")


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # `_begin_sqlite` begins; the sqlite3 module would begin too late
    _set_wal_mode(connection)
    for line in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {line}")


def _set_wal_mode(connection: Any) -> None:
    # Changing the journal mode of a new file fails at once while another process uses the file, instead of waiting
    # as other statements do.
    deadline = time.monotonic() + timeout_s()
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    # A writer takes the lock before it reads; otherwise two writers could base decisions on the same state.
    writes = connection.get_execution_options().get("sweeps_writes", False)
    connection.exec_driver_sql(f"PRAGMA busy_timeout={1000 * timeout_s():.0f}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
