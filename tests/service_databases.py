"""Databases of the service: copies of an empty one, since making one waits for the disk several times; and processes
that open one at the same time."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from sqlalchemy import make_url
from stores import made_once


def _empty() -> Path:
    """The file of an empty database."""
    from sweeps.service.database.engine import open_database

    return made_once("empty-service.db", lambda path: open_database(f"sqlite:///{path}").dispose())


def make_service_database(url: str) -> str:
    """Make a database of the service, if its address is of an SQLite file that does not exist yet; returns the
    address."""
    parts = make_url(url)
    if parts.get_backend_name() == "sqlite" and not (path := Path(str(parts.database))).exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_empty(), path)
    return url


OPEN = """
import os, sys
from alembic import command
from sweeps.service.database.engine import open_database, writing
from sweeps.service.database.tables import metadata
reader, writer = os.pipe()
children = []
for _ in range(int(sys.argv[2])):
    children.append(os.fork())
    if not children[-1]:
        os.close(writer)
        os.read(reader, 1)  # until all are there
        engine = open_database(sys.argv[1])
        with writing(engine) as connection:
            for table in metadata.sorted_tables:
                connection.execute(table.select())
        engine.dispose()
        sys.exit(0)
os.close(writer)
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


def open_at_once(url: str, count: int) -> tuple[list[int], str]:
    """Exit statuses of processes that open and read a database at the same time, and what they print to stderr."""
    command = [sys.executable, "-c", OPEN, url, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    return json.loads(done.stdout), done.stderr
