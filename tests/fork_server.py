"""Processes that have imported what trainings do before they begin: forks of one server, shared by all test processes.

An interpreter of its own would import torch and transformers for seconds. The server of a test run is started by the
first test process that asks for it, and ends with the run; started as a script it is the server itself:

    python tests/fork_server.py FOLDER OWNER
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import pickle
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock

PRELOADED = (
    "pytest",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "torch.distributed.pipelining",
    "datasets",
    "peft",
    "transformers.models.llama.modeling_llama",
    "sklearn.datasets",
    "sklearn.model_selection",
    "sweeps_train.loop",
    "sweeps_train.tasks.causal_lm",
    "sweeps_train.tasks.image_classification",
    "sweeps_train.trainer",
)
"""Modules that nearly every training imports, also those that it imports when it begins."""
SOCKET, SERVER = "socket", "server"
"""Files: the server's socket, and the number of its process."""


def run_forked(functions: list[Callable[[], None]]) -> list[int]:
    """Run each function in a process of its own, all at once, with the environment and import path of this process.
    Returns their exit statuses.

    Args:
        functions: Functions of modules, or partial ones, which pickle takes.
    """
    forker = _forker()
    try:
        forker.connection.send((dict(os.environ), [*sys.path]))
        forker.connection.send_bytes(pickle.dumps(functions))
        statuses: list[int] = forker.connection.recv()
    except BaseException:  # such as the time limit of a test, whose processes may wait for each other for ever
        os.killpg(forker.pid, signal.SIGKILL)
        _forker.cache_clear()
        raise
    return statuses


@dataclass(frozen=True)
class Forker:
    """Process of the server that forks for this test process."""

    connection: Connection
    pid: int


@functools.cache
def _forker() -> Forker:
    folder = start_server()
    while not (folder / SOCKET).exists():
        assert _is_running(int((folder / SERVER).read_text())), (folder / "output").read_text(encoding="utf-8")
        time.sleep(0.05)
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.connect(str(folder / SOCKET))
    socket.send_fds(connected, [b"."], [1, 2])  # pytest shows what is written there
    connection = Connection(connected.detach())
    return Forker(connection, connection.recv())


def start_server() -> Path:
    """Start the server of this run of the tests, if no test process has done so. Returns its folder, where its socket
    is when it has imported everything."""
    run, owner = os.environ.get("PYTEST_XDIST_TESTRUNUID"), os.getppid()
    if run is None:
        run, owner = str(os.getpid()), os.getpid()
    folder = Path(tempfile.gettempdir()) / f"sweeps-tests-{run}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with FileLock(folder / "lock"):
        if not (folder / SERVER).exists():
            with (folder / "output").open("wb") as output:
                server = subprocess.Popen(
                    [sys.executable, __file__, str(folder), str(owner)],
                    stdout=output, stderr=output, start_new_session=True,
                )  # fmt: skip
            server.returncode = 0  # it may outlive this process, of which Python would warn
            (folder / SERVER).write_text(str(server.pid))
    return folder


def _is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# --- the server ----------------------------------------------------------------------------------------------


def serve(folder: Path, owner: int) -> None:
    """Fork for each test process that connects, until the run of the tests has ended."""
    for module in PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a collection in a fork would copy the pages of all that was imported
    os.chdir(folder)  # not where the test process happened to be
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(folder / "unready"))
        server.listen()
        (folder / "unready").rename(folder / SOCKET)
        while psutil.pid_exists(owner):
            if not select.select([server], [], [], 1.0)[0]:
                continue
            connected, _ = server.accept()
            if os.fork() == 0:
                server.close()
                fork_for(connected)
                os._exit(0)
            connected.close()
    shutil.rmtree(folder)


def fork_for(connected: socket.socket) -> None:
    """Run what a test process sends until that ends."""
    os.setsid()
    _, outputs, *_ = socket.recv_fds(connected, 1, 2)
    for number, output in zip((1, 2), outputs, strict=True):
        os.dup2(output, number)
        os.close(output)
    connection = Connection(connected.detach())
    connection.send(os.getpid())
    try:
        while True:
            environment, path = connection.recv()
            os.environ.clear()
            os.environ.update(environment)
            sys.path[:] = path
            functions = pickle.loads(connection.recv_bytes())  # imports their modules once, for all processes
            gc.freeze()
            connection.send(_exit_statuses(functions))
    except EOFError:
        return


def _exit_statuses(functions: list[Callable[[], None]]) -> list[int]:
    context: Any = get_context("fork")
    processes = [context.Process(target=function) for function in functions]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
