"""A real PostgreSQL, as Debian has it, for all processes of a run of the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from filelock import FileLock

PASSWORD = "c0rrect-horse"
DEBIAN = Path("/usr/lib/postgresql")
FOLDER = "SWEEPS_TESTS_POSTGRES"
"""Environment variable with the folder of the run's server, which the first process sets and the others inherit."""
EMPTY = "empty"
"""Database with the tables of the service."""

on_both_databases = pytest.mark.parametrize("service_database", ["sqlite", "postgresql"], indirect=True)
"""Marks a test whose promise PostgreSQL can break in a way of its own: it runs with both every time. The other tests of
the service's database run with PostgreSQL among the slow ones."""
on_sqlite_alone = pytest.mark.parametrize("service_database", ["sqlite"], indirect=True)
"""Marks a test that asks nothing of the database that the two could answer differently."""


def program(name: str) -> str | None:
    """Path of a program of PostgreSQL; Debian keeps them off PATH."""
    found = sorted(DEBIAN.glob(f"*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name)


def pytest_configure(config: pytest.Config) -> None:
    """Name the folder of this run's server, which is started when a test needs it."""
    if not hasattr(config, "workerinput"):
        name_folder()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server when all processes of the run have ended."""
    if not hasattr(config, "workerinput"):
        remove_server()


def name_folder() -> None:
    """Let the server of this process and its children be in a folder of its own, when one needs it."""
    os.environ[FOLDER] = f"/tmp/sweeps-postgres-{os.getpid()}"  # `nobody` can't reach into pytest's own


def remove_server() -> None:
    """Stop the server, if there is one, and remove its folder."""
    folder = Path(os.environ[FOLDER])
    if (folder / "port").exists():
        run_program("pg_ctl", "-D", str(folder / "data"), "-m", "immediate", "stop")
    shutil.rmtree(folder, ignore_errors=True)
    folder.with_suffix(".lock").unlink(missing_ok=True)


class Postgres:
    """The run's cluster, on the loopback interface; its superuser is ``sweeps``."""

    def __init__(self) -> None:
        folder = Path(os.environ[FOLDER])
        with FileLock(folder.with_suffix(".lock")):
            if is_new := not (folder / "port").exists():
                _start(folder)
            port = (folder / "port").read_text()
            self._server = f"//sweeps:{PASSWORD}@127.0.0.1:{port}"
            self.uri = f"postgresql:{self._server}/postgres"
            if is_new:
                self._make_template()

    def database(self, template: str = "template1") -> str:
        """Address of a new database: an empty one, or a copy of the template."""
        name = f"test{time.time_ns()}_{os.getpid()}"
        self._create(name, template)
        return self._address(name)

    def _make_template(self) -> None:
        from sweeps.service.database.engine import open_database

        self._create(EMPTY, "template1")
        open_database(self._address(EMPTY)).dispose()

    def _create(self, name: str, template: str) -> None:
        from sqlalchemy import create_engine, text

        engine = create_engine(self._address("postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'))
        engine.dispose()

    def _address(self, name: str) -> str:
        return f"postgresql+psycopg:{self._server}/{name}"


def _start(folder: Path) -> None:
    """Start a server in a new folder, and write its port there."""
    from recording import free_port

    folder.mkdir()
    (folder / "password").write_text(PASSWORD)
    if as_nobody():
        for path in (folder, folder / "password"):
            shutil.chown(path, "nobody")
    port = free_port()
    where = ["-D", str(folder / "data")]
    run_program(
        "initdb", *where, "-U", "sweeps", "-A", "scram-sha-256", "--no-sync", "--pwfile", str(folder / "password")
    )
    settings = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} -c fsync=off"
    run_program("pg_ctl", *where, "-o", settings, "-l", str(folder / "log"), "-w", "start")
    (folder / "port").write_text(str(port))


def as_nobody() -> list[str]:
    return ["runuser", "-u", "nobody", "--"] if os.geteuid() == 0 else []  # it refuses to run as root


def run_program(name: str, *arguments: str) -> None:
    command = [*as_nobody(), str(program(name)), *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")
