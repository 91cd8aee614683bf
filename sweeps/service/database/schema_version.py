"""The version of the service's database: checked when it is opened, and brought forward by Alembic where it is older.

Alembic keeps the version in its table ``alembic_version``; ours, ``schema_versions``, says which release wrote it. Both
are changed in the transaction that changes the tables.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, MetaData, inspect, text

from sweeps.errors import ConfigError
from sweeps.files import make_private, replacing
from sweeps.redact import redact_uri
from sweeps.service.database.migrations import HEAD
from sweeps.versions import check_not_newer, release

MIGRATIONS = Path(__file__).with_name("migrations")
SIGN = "jobs"
"""A table that every database of ours has had from the first."""
UNVERSIONED = 1
"""The version of a database that was made before versions were kept."""

logger = logging.getLogger(__name__)


def is_current(connection: Connection, tables: MetaData, url: str) -> bool:
    """Whether the database has the tables of this release; False if it is new or older.

    Raises:
        NewerVersion: A later release has brought it forward.
        ConfigError: It lacks columns that its version has, or is another program's.
    """
    if _found(connection, url) != HEAD:
        return False
    _check_complete(connection, tables, url)
    return True


def upgrade(connection: Connection, tables: MetaData, url: str) -> None:
    """Make the tables of a new database, or bring an older one forward. An SQLite file is copied first.

    Args:
        connection: A writing transaction, alone in the database.
        tables: As this release has them.
        url: The database's.

    Raises:
        NewerVersion: A later release has brought it forward.
        ConfigError: It lacks columns that no migration adds; the transaction must be rolled back.
    """
    found = _found(connection, url)
    if found is None:
        tables.create_all(connection)
        _stamp(connection, HEAD)
    elif found < HEAD:
        _say(url, found, _copy(connection, found))
        _run_migrations(connection, found)
        _check_complete(connection, tables, url)
    if found != HEAD:
        _note(connection)


def _found(connection: Connection, url: str) -> int | None:
    """The database's version; None if it is new.

    Raises:
        NewerVersion: A later release has brought it forward.
        ConfigError: It is another program's.
    """
    names = set(inspect(connection).get_table_names())
    if "alembic_version" in names:
        row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
        if row is not None:
            if not str(row[0]).isdecimal():
                raise ConfigError(
                    f"database={redact_uri(url)}: is the database of another program (Alembic's version is {row[0]}), "
                    "and nothing was changed; name one that is Sweeps' own"
                )
            found = int(row[0])
            check_not_newer(f"database={redact_uri(url)}", found, HEAD, _author(connection, names, found))
            return found
    return UNVERSIONED if SIGN in names else None


def _author(connection: Connection, names: set[str], version: int) -> str | None:
    if "schema_versions" not in names:
        return None
    asked = text("SELECT release FROM schema_versions WHERE version = :version")
    return connection.execute(asked, {"version": version}).scalar()


def _check_complete(connection: Connection, tables: MetaData, url: str) -> None:
    """
    Raises:
        ConfigError: A database is not what its version says, and requests would fail later.
    """
    has: dict[str, set[str]] = {
        table: {column["name"] for column in columns}
        for (_, table), columns in inspect(connection).get_multi_columns().items()
    }
    missing = [
        f"{name}.{column.name}"
        for name, table in tables.tables.items()
        for column in table.columns
        if column.name not in has.get(name, ())
    ]
    if missing:
        raise ConfigError(
            f"database={redact_uri(url)}: lacks {', '.join(missing)}, which version {HEAD} of it has: it was made by "
            "a development version, or changed by hand. Nothing was changed; restore a backup, or move it aside, and "
            "a new one is made"
        )


def _copy(connection: Connection, found: int) -> Path | None:
    """Copy an SQLite file as it was before this transaction; None for a server, whose backup is its operator's."""
    if connection.dialect.name != "sqlite" or not (name := connection.engine.url.database):
        return None
    copy = Path(f"{name}.version-{found}.backup")
    with replacing(copy) as unfinished:
        make_private(unfinished)
        source, target = sqlite3.connect(name), sqlite3.connect(unfinished)
        with contextlib.closing(source), contextlib.closing(target):
            source.backup(target)
    return copy


def _say(url: str, found: int, copy: Path | None) -> None:
    if copy is not None:
        logger.warning(
            "database=%s: goes from version %d to %d; it was copied to %s", redact_uri(url), found, HEAD, copy
        )
    else:
        logger.warning(
            "database=%s: goes from version %d to %d, in one transaction; have a backup (pg_dump) to go back to an "
            "earlier release",
            redact_uri(url),
            found,
            HEAD,
        )


def _config(connection: Connection) -> Any:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _run_migrations(connection: Connection, found: int) -> None:
    from alembic import command

    config = _config(connection)
    if "alembic_version" not in inspect(connection).get_table_names():
        command.stamp(config, str(found))
    command.upgrade(config, str(HEAD))


def _stamp(connection: Connection, version: int) -> None:
    from alembic import command

    command.stamp(_config(connection), str(version))


def _note(connection: Connection) -> None:
    """Which release wrote this version."""
    noted = text("INSERT INTO schema_versions (version, release, since) VALUES (:version, :release, :since)")
    connection.execute(noted, {"version": HEAD, "release": release(), "since": time.time()})
