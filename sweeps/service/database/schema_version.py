"""Schema version of the service's database: checked when it is opened, and upgraded by Alembic if it is older.

Alembic stores the version in its table ``alembic_version``; our table ``schema_versions`` has the release that wrote
each version. Both are changed in the same transaction as the tables.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, inspect, text

from sweeps.errors import ConfigError
from sweeps.files.versions import check_not_newer, release
from sweeps.files.whole_files import make_private, replacing
from sweeps.service.database.migrations import HEAD
from sweeps.service.database.tables import metadata
from sweeps.texts.uri_passwords import redact_uri

MIGRATIONS = Path(__file__).with_name("migrations")
FIRST_TABLE = "jobs"
"""Table that every version of the database has."""
UNVERSIONED = 1
"""Version of a database that was created before versions were stored."""

logger = logging.getLogger(__name__)


def is_current(connection: Connection, url: str) -> bool:
    """Whether the database has the tables of this release; False if it is new or older.

    Raises:
        NewerVersion: A later release has upgraded the database.
        ConfigError: The database lacks columns of its version, or belongs to another program.
    """
    if _stored_version(connection, url) != HEAD:
        return False
    _check_complete(connection, url)
    return True


def upgrade(connection: Connection, url: str) -> None:
    """Create the tables of a new database, or upgrade an older one, in the caller's transaction, which must hold the
    lock ``MAKING_TABLES``. An SQLite file is copied first.

    Raises:
        NewerVersion: A later release has upgraded the database.
        ConfigError: The database lacks columns that no migration adds; the transaction must be rolled back.
    """
    from alembic import command

    found = _stored_version(connection, url)
    if found is None:
        metadata.create_all(connection)
        command.stamp(_config(connection), str(HEAD))
    elif found < HEAD:
        back = _keep_copy(connection, found)
        logger.warning("database=%s: is upgraded from version %d to %d%s", redact_uri(url), found, HEAD, back)
        config = _config(connection)
        if "alembic_version" not in inspect(connection).get_table_names():
            command.stamp(config, str(found))
        command.upgrade(config, str(HEAD))
        _check_complete(connection, url)
    if found != HEAD:
        _note_release(connection)


def _stored_version(connection: Connection, url: str) -> int | None:
    """Return the version of the database; None if it is new.

    Raises:
        NewerVersion: A later release has upgraded the database.
        ConfigError: The database belongs to another program.
    """
    names = set(inspect(connection).get_table_names())
    if "alembic_version" in names:
        row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
        if row is not None:
            if not str(row[0]).isdecimal():
                raise ConfigError(
                    f"database={redact_uri(url)}: is the database of another program (Alembic's version is {row[0]}), "
                    "and nothing was changed; name a database that only Sweeps uses"
                )
            found = int(row[0])
            check_not_newer(f"database={redact_uri(url)}", found, HEAD, _release_of(connection, names, found))
            return found
    return UNVERSIONED if FIRST_TABLE in names else None


def _release_of(connection: Connection, names: set[str], version: int) -> str | None:
    if "schema_versions" not in names:
        return None
    statement = text("SELECT release FROM schema_versions WHERE version = :version")
    return connection.execute(statement, {"version": version}).scalar()


def _check_complete(connection: Connection, url: str) -> None:
    """Check that a database has all columns of this release.

    Raises:
        ConfigError: Columns are missing.
    """
    has: dict[str, set[str]] = {
        table: {column["name"] for column in columns}
        for (_, table), columns in inspect(connection).get_multi_columns().items()
    }
    missing = [
        f"{name}.{column.name}"
        for name, table in metadata.tables.items()
        for column in table.columns
        if column.name not in has.get(name, ())
    ]
    if missing:
        raise ConfigError(
            f"database={redact_uri(url)}: lacks {', '.join(missing)} of version {HEAD}: it was made by a development "
            "version, or changed by hand. Nothing was changed; restore a backup, or move it aside to get a new one"
        )


def _keep_copy(connection: Connection, found: int) -> str:
    """Copy an SQLite file as it was before this transaction; return instructions for undoing the upgrade."""
    if connection.dialect.name != "sqlite" or not (name := connection.engine.url.database):
        return " in one transaction; to go back, restore a backup (pg_dump)"
    copy = Path(f"{name}.version-{found}.backup")
    with replacing(copy) as unfinished:
        copy_sqlite(Path(name), unfinished)
    return f"; a copy was written to {copy}"


def copy_sqlite(source: Path, target: Path) -> None:
    """Copy a database that others may be writing to, in a consistent state; only the owner can read the copy."""
    make_private(target)
    with contextlib.closing(sqlite3.connect(source)) as opened, contextlib.closing(sqlite3.connect(target)) as copy:
        opened.backup(copy)


def _config(connection: Connection) -> Any:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _note_release(connection: Connection) -> None:
    """Record the release that wrote this version."""
    noted = text("INSERT INTO schema_versions (version, release, since) VALUES (:version, :release, :since)")
    connection.execute(noted, {"version": HEAD, "release": release(), "since": time.time()})
