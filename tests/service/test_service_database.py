"""The service's database: made by whoever comes first, also where several come at once."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from postgres import Postgres
from service_databases import open_at_once
from sqlalchemy import Engine

from sweeps.service.database.engine import open_database, writing
from sweeps.service.database.tables import metadata


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
            for table in metadata.sorted_tables:
                connection.execute(table.select())
        engine.dispose()
