"""A service's database is made by whoever comes first; one of an earlier release is brought forward, one of a later
release is refused, and neither loses anything."""

from __future__ import annotations

import logging
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from postgres import Postgres
from service_databases import open_at_once
from sqlalchemy import Connection, Engine, create_engine, select
from verbs import refusal

from sweeps.errors import ConfigError
from sweeps.files.versions import NewerVersion, release
from sweeps.service.database import tables
from sweeps.service.database.engine import open_database, writing
from sweeps.service.database.migrations import HEAD
from sweeps.service.database.schema_version import MIGRATIONS
from sweeps.service.queue import jobs
from sweeps.service.schedules.firing import remove_old

EARLIER = Path(__file__).parents[1] / "earlier" / "service.sql"
"""A database as release 0.1.0 left it, before databases had a version."""
ADDED = "schema_versions"
ADDED_INDEXES = ("jobs_by_state", "jobs_by_user", "jobs_by_project", "jobs_by_schedule", "jobs_started", "jobs_ended")
"""Table and indexes that later versions have added."""


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """File of a database that release 0.1.0 left."""
    file = tmp_path / "service.db"
    contents(file, EARLIER.read_text(encoding="utf-8"))
    return file


def version(engine: Engine) -> str:
    with engine.connect() as connection:
        return str(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one())


def differences(engine: Engine) -> list[object]:
    """Between the database and the tables of this release."""
    with engine.connect() as connection:
        return list(compare_metadata(MigrationContext.configure(connection), tables.metadata))


def test_a_database_from_before_versions_is_brought_forward_with_all_that_it_holds(
    earlier: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        engine = open_database(f"sqlite:///{earlier}")
    assert version(engine) == str(HEAD)
    assert differences(engine) == []
    with engine.connect() as connection:
        found = [(job.id, job.sweep, job.user, job.state) for job in jobs.query(connection)]
        tokens = connection.execute(select(tables.tokens.c.user, tables.tokens.c.role)).all()
        written = connection.execute(select(tables.schema_versions.c.version, tables.schema_versions.c.release))
        assert written.all() == [(HEAD, release())]
    assert found == [
        (5, "nightly-20261119", "schedule", "queued"),
        (4, "digits-3", "ada", "queued"),
        (3, "digits-3", "ada", "finished"),
        (2, "digits-2", "bob", "queued"),
        (1, "digits", "ada", "queued"),
    ]
    assert tokens == [("ada", "admin")]
    with writing(engine) as connection:
        assert jobs.prioritise(connection, 1, 7).priority == 7
    remove_old(engine, 1795000900.0, 400)
    engine.dispose()
    assert "from version 1 to" in caplog.text


def test_an_sqlite_file_is_copied_before_it_is_brought_forward_for_its_owner_alone(earlier: Path) -> None:
    before = contents(earlier)
    open_database(f"sqlite:///{earlier}").dispose()
    copy = earlier.with_name("service.db.version-1.backup")
    assert copy.stat().st_mode & 0o777 == 0o600
    assert contents(copy) == before
    open_database(f"sqlite:///{earlier}").dispose()
    assert [path.name for path in earlier.parent.glob("*backup*")] == [copy.name]


def contents(file: Path, script: str = "") -> list[str]:
    """All that a database has, after a script."""
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(script)
        return list(connection.iterdump())


def test_services_that_start_at_once_bring_it_forward_once(earlier: Path) -> None:
    ended, said = open_at_once(f"sqlite:///{earlier}", 3)
    assert ended == [0, 0, 0], said
    assert said.count("from version 1 to") == 1


def test_a_migration_that_fails_leaves_the_database_as_it_was(earlier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(earlier)

    def fail(*_: object, **__: object) -> None:
        raise OSError("the machine's last breath")

    monkeypatch.setattr("sweeps.service.database.schema_version._note_release", fail)
    with pytest.raises(ConfigError, match="last breath"):
        open_database(f"sqlite:///{earlier}")
    assert contents(earlier) == before


def test_a_database_of_a_later_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "service.db"
    open_database(f"sqlite:///{file}").dispose()
    later = "UPDATE alembic_version SET version_num = '999'; INSERT INTO schema_versions VALUES (999, '7.8.9', 0)"
    before = contents(file, later)
    with pytest.raises(NewerVersion) as refused:
        open_database(f"sqlite:///{file}")
    assert refused.value.exit_status == 2
    for word in ("ray-sweeps 7.8.9", "version 999", f"up to {HEAD}", release(), "pip install --upgrade ray-sweeps"):
        assert word in str(refused.value)
    assert contents(file) == before
    assert "7.8.9" in refusal("schedule", "list", f"database=sqlite:///{file}")


def test_a_database_that_lacks_a_column_is_refused_by_its_name(earlier: Path, tmp_path: Path) -> None:
    current = tmp_path / "current.db"
    open_database(f"sqlite:///{current}").dispose()
    for file in (earlier, current):
        before = contents(file, "ALTER TABLE jobs DROP COLUMN stop_asked")
        with pytest.raises(ConfigError, match=r"lacks jobs\.stop_asked"):
            open_database(f"sqlite:///{file}")
        assert contents(file) == before


def test_the_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"
    tables_of_mlflow = (
        "CREATE TABLE alembic_version (version_num); CREATE TABLE jobs (id);"
        "INSERT INTO alembic_version VALUES ('dc11669786a5')"
    )
    before = contents(file, tables_of_mlflow)
    with pytest.raises(ConfigError, match=r"another program.*dc11669786a5"):
        open_database(f"sqlite:///{file}")
    assert contents(file) == before


def test_every_version_has_its_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [str(HEAD)]
    assert [each.revision for each in scripts.walk_revisions()] == [str(each) for each in range(HEAD, 0, -1)]


def make_first_version(connection: Connection) -> None:
    """Make the tables of release 0.1.0: those of this release, without what the migrations have added. A migration that
    adds something is to be named here."""
    tables.metadata.create_all(connection, [each for name, each in tables.metadata.tables.items() if name != ADDED])
    for index in tables.jobs.indexes:
        if index.name in ADDED_INDEXES:
            index.drop(connection)
    for column in ("user", "project", "state"):
        connection.exec_driver_sql(f'CREATE INDEX ix_jobs_{column} ON jobs ("{column}")')


def test_a_postgresql_from_before_versions_is_brought_forward_in_one_transaction(postgres: Postgres) -> None:
    url = postgres.database()
    engine = create_engine(url)
    with engine.begin() as connection:
        make_first_version(connection)
    engine.dispose()
    engine = open_database(url)
    assert version(engine) == str(HEAD)
    assert differences(engine) == []
    engine.dispose()


def test_services_that_start_at_once_on_an_empty_file_all_start(tmp_path: Path) -> None:
    ended, said = open_at_once(f"sqlite:///{tmp_path}/new/service.db", 4)
    assert (ended, said) == ([0] * 4, "")


def test_a_service_that_starts_while_another_writes_to_a_new_file_waits_for_it(tmp_path: Path) -> None:
    file = tmp_path / "service.db"
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("CREATE TABLE anything (number)")
    other.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(1) as pool:
        opened = pool.submit(open_database, f"sqlite:///{file}")
        with pytest.raises(TimeoutError):
            opened.result(timeout=0.5)
        other.execute("COMMIT")
        opened.result(timeout=20).dispose()
    other.close()


def test_services_that_start_at_once_on_an_empty_postgresql_all_start(postgres: Postgres) -> None:
    url, go = postgres.database(), threading.Barrier(4)

    def start() -> Engine:
        go.wait(60)
        return open_database(url)  # its locks are a connection's, and not a process's as SQLite's are

    with ThreadPoolExecutor(4) as services:
        engines = [each.result(60) for each in [services.submit(start) for _ in range(4)]]
    for engine in engines:
        with writing(engine) as connection:
            for table in tables.metadata.sorted_tables:
                connection.execute(table.select())
        engine.dispose()
