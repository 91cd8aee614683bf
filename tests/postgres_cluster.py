"""A PostgreSQL of a test's own, which it may stop, kill and let fail over; and a PgBouncer in front of one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

import psutil
import psycopg
import pytest
from postgres import as_nobody, program, run_program
from recording import free_port
from waiting import wait_until


class Cluster:
    """A server on the loopback interface, which trusts everybody there; its superuser is ``sweeps``."""

    def __init__(self, primary: Cluster | None = None) -> None:
        """Start a server, or a standby of ``primary``."""
        if program("initdb") is None:
            pytest.skip("needs PostgreSQL: apt-get install -y postgresql")
        self.folder = Path(tempfile.mkdtemp(prefix="sweeps-cluster-", dir="/tmp"))
        if as_nobody():
            shutil.chown(self.folder, "nobody")
        self.port = free_port()
        where = ["-D", str(self.folder / "data")]
        if primary is None:
            run_program("initdb", *where, "-U", "sweeps", "-A", "trust", "--no-sync")
        else:
            run_program(
                "pg_basebackup", *where, "-R", "--no-sync", "-h", "127.0.0.1", "-p", str(primary.port), "-U", "sweeps"
            )
        self.start()

    @property
    def url(self) -> str:
        """Address for SQLAlchemy."""
        return f"postgresql+psycopg://sweeps@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.go_on()
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start the server."""
        settings = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.folder} -c fsync=off"
        where = ["-D", str(self.folder / "data"), "-l", str(self.folder / "log")]
        run_program("pg_ctl", *where, "-o", settings, "-w", "start")

    def kill(self) -> None:
        """End the server at once, as a crash does."""
        if (self.folder / "data" / "postmaster.pid").exists():
            run_program("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "stop")

    def hang(self) -> None:
        """Stop all of its processes."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let the processes go on."""
        self._signal(signal.SIGCONT)

    def promote(self) -> None:
        """Make a standby the primary."""
        run_program("pg_ctl", "-D", str(self.folder / "data"), "-w", "promote")

    def connect(self) -> psycopg.Connection:
        """Return a connection of another client than the service."""
        return psycopg.connect(host="127.0.0.1", port=self.port, user="sweeps", dbname="postgres")

    def _signal(self, number: signal.Signals) -> None:
        try:
            postmaster = int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
            processes = [*psutil.Process(postmaster).children(), psutil.Process(postmaster)]
        except (OSError, psutil.NoSuchProcess):
            return
        for each in processes:
            os.kill(each.pid, number)


class Bouncer:
    """A PgBouncer in transaction mode, with few connections to the server."""

    def __init__(self, port: int) -> None:
        found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
        if found is None:
            pytest.skip("needs PgBouncer: apt-get install -y pgbouncer")
        self.folder = Path(tempfile.mkdtemp(prefix="sweeps-bouncer-", dir="/tmp"))
        if as_nobody():
            shutil.chown(self.folder, "nobody")
        self.port = free_port()
        (self.folder / "users").write_text('"sweeps" ""\n')
        (self.folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={port}\n[pgbouncer]\nlisten_addr=127.0.0.1\n"
            f"listen_port={self.port}\nauth_type=trust\nauth_file={self.folder}/users\npool_mode=transaction\n"
            f"default_pool_size=3\nunix_socket_dir=\n"
        )
        command = [*as_nobody(), found, str(self.folder / "pgbouncer.ini")]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
        wait_until(self._answers, 20)

    @property
    def url(self) -> str:
        """Address for SQLAlchemy."""
        return f"postgresql+psycopg://sweeps@127.0.0.1:{self.port}/postgres"

    def close(self) -> None:
        """End it."""
        for each in [*psutil.Process(self._process.pid).children(), self._process]:
            each.terminate()
        self._process.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            psycopg.connect(
                host="127.0.0.1", port=self.port, user="sweeps", dbname="postgres", connect_timeout=2
            ).close()
        except psycopg.OperationalError:
            time.sleep(0.1)
            return False
        return True
