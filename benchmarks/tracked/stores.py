"""Stores: SQLite, a tracking server on SQLite, and the same server with delayed answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from free_port import free_port

STORES = {"sqlite": "SQLite", "server": "server", "slow": "server that answers in 1 s"}
LATE_S = 1.0


@contextlib.contextmanager
def opened(store: str, folder: Path) -> Iterator[str]:
    """Open a store in a new folder, and yield its tracking URI."""
    folder.mkdir(parents=True)
    if store == "sqlite":
        yield f"sqlite:///{folder}/mlflow.db"
        return
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
    )
    try:
        _wait_for(f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port if store == 'server' else late(port, LATE_S)}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def late(port: int, seconds: float) -> int:
    """Start a proxy that delays the answers of a local server, and return its port; it ends with the process."""
    own = free_port()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pause_s: float) -> None:
        # Each piece of an answer has the same delay, so that delays do not add up.
        loop = asyncio.get_running_loop()
        while data := await reader.read(1 << 16):
            loop.call_later(pause_s, writer.write, data)
        loop.call_later(pause_s, writer.close)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(carry(reader, to_server, 0.0), carry(from_server, writer, seconds))

    async def listen() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", own)
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(listen()), daemon=True).start()
    return own


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.1)
    raise TimeoutError(url)
