"""A real PostgreSQL, as Debian has it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from recording import free_port
from sqlalchemy import create_engine, text

PASSWORD = "c0rrect-horse"
DEBIAN = Path("/usr/lib/postgresql")


def program(name: str) -> str | None:
    """Path of a program of PostgreSQL; Debian keeps them off PATH."""
    found = sorted(DEBIAN.glob(f"*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name)


class Postgres:
    """A cluster of its own on the loopback interface, whose superuser is ``sweeps``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._as = ["runuser", "-u", "nobody", "--"] if os.geteuid() == 0 else []  # it refuses to run as root
        folder.mkdir()
        (folder / "password").write_text(PASSWORD)
        for path in (folder, folder / "password"):
            if self._as:
                shutil.chown(path, "nobody")
        port = free_port()
        self._server = f"//sweeps:{PASSWORD}@127.0.0.1:{port}"
        self.uri = f"postgresql:{self._server}/postgres"
        settings = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} -c fsync=off"
        where = ["-D", str(folder / "data")]
        self._run("initdb", *where, "-U", "sweeps", "-A", "scram-sha-256", "--pwfile", str(folder / "password"))
        self._run("pg_ctl", *where, "-o", settings, "-l", str(folder / "log"), "-w", "start")

    def database(self, name: str) -> str:
        """Address of a new and empty database."""
        engine = create_engine(f"postgresql+psycopg:{self._server}/postgres", isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f'CREATE DATABASE "{name}"'))
        engine.dispose()
        return f"postgresql+psycopg:{self._server}/{name}"

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-m", "immediate", "stop")
        shutil.rmtree(self._folder)

    def _run(self, name: str, *arguments: str) -> None:
        command = [*self._as, str(program(name)), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")
