"""Processes that have imported what tests need before they begin: forks of one server, shared by a run's processes.
An interpreter of its own would import torch, Ray and the tests for 20 s, and for 60 s where nothing is compiled yet.

The server is this file as a script, and ends with whoever has started it. So is a program that does as Python does with
``-u -c CODE``, in a fork:

    python tests/fork_server.py serve SOCKET TEST...
    python tests/fork_server.py SOCKET -u -c CODE
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import os
import pickle
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import execnet
    import pytest

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
    "sweeps_train.lanes.lockstep",
)
"""Modules that nearly every training imports, also those that it imports when it begins."""
ADDRESS = "SWEEPS_TESTS_FORK_SERVER"
"""Environment variable with the socket of the server of this run."""


def fork_test_processes(config: pytest.Config, specs: Sequence[execnet.XSpec]) -> None:
    """Let pytest-xdist start its processes as forks of one that has collected the tests."""
    address = start_server(*config.args, stop=config.add_cleanup)
    for spec in specs:
        spec.python = shlex.join([sys.executable, "-S", __file__, address])


def run_forked(functions: list[Callable[[], None]]) -> list[int]:
    """Run each function, which pickle takes, in a process of its own, all at once, with the environment and import path
    of this process. Returns their exit statuses."""
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
    address = os.environ.get(ADDRESS) or start_server(stop=atexit.register)
    connection = _connect(address, [1, 2])  # pytest shows what is written there
    connection.send(None)
    return Forker(connection, connection.recv())


def start_server(*tests: str, stop: Callable[[Callable[[], None]], object]) -> str:
    """Start the server of this run, which collects these files and folders of tests, or by default imports what
    trainings do. Returns its socket. ``stop`` takes what ends it."""
    folder = Path(tempfile.mkdtemp(prefix="sweeps-tests-"))
    os.environ[ADDRESS] = str(folder / "socket")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.environ[ADDRESS])
        listening.listen()
        number = listening.fileno()
        command = [sys.executable, __file__, "serve", str(number), *tests]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[number])

    def end() -> None:
        server.communicate()
        shutil.rmtree(folder)

    stop(end)
    return os.environ[ADDRESS]


def _connect(address: str, files: list[int]) -> Connection:
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(address)
    socket.send_fds(connected, [b"."], files)
    return Connection(connected.detach())


# --- the server ----------------------------------------------------------------------------------------------


def serve(server: socket.socket, tests: list[str]) -> None:
    """Fork for all who connect, until standard input ends."""
    import pytest

    if tests:
        pytest.main(["--collect-only", "-qq", *tests])
    if not tests or "sweeps_train.loop" in sys.modules:
        for module in PRELOADED:
            importlib.import_module(module)
    if "mlflow" in sys.modules:
        importlib.import_module("mlflow.store.tracking.sqlalchemy_store")  # MLflow does with the first store, for 2 s
        read_migrations_once()
    gc.collect()
    gc.freeze()  # a collection in a fork would copy the pages of all that was imported
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    while 0 not in (ready := select.select([server, 0], [], [])[0]):
        assert ready
        connected, _ = server.accept()
        if os.fork() == 0:
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _, files, *_ = socket.recv_fds(connected, 1, 3)
            connection = Connection(connected.detach())
            code = connection.recv()
            if code is not None:
                run_code(connection, files, *code)
            fork_for(connection, files)
            os._exit(0)
        connected.close()


def read_migrations_once() -> None:
    """Let MLflow look into the 67 files of its migrations now, and not for every store that a test opens."""
    from mlflow.store.db import utils

    newest = utils._get_latest_schema_revision()
    utils._get_latest_schema_revision = lambda: newest


def run_code(connection: Connection, files: list[int], code: str, folder: str, environment: dict[str, str]) -> NoReturn:
    """Be a Python that was called with ``-c CODE``, and tell who has called when it has ended."""
    connection.send("forked")
    if pid := os.fork():
        for file in files:
            os.close(file)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(BrokenPipeError):  # who has called has ended
            connection.send(os.waitstatus_to_exitcode(status))
        os._exit(0)
    connection.close()
    _use_files([0, 1, 2], files)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 - as long as it lives
    os.chdir(folder)
    os.environ.update(environment)  # what test modules have set when they were imported stays
    sys.argv = ["-c"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    exec(code, vars(sys.modules["__main__"]))
    sys.exit()


def fork_for(connection: Connection, files: list[int]) -> None:
    """Run what a test process sends until that ends."""
    os.setsid()
    _use_files([1, 2], files)
    connection.send(os.getpid())
    try:
        while True:
            environment, path = connection.recv()
            os.environ.clear()
            os.environ.update(environment)
            sys.path[:] = path
            functions = pickle.loads(connection.recv_bytes())  # imports their modules once, for all processes
            gc.freeze()
            connection.send(exit_statuses("fork", functions))
    except EOFError:
        return


def _use_files(numbers: list[int], files: list[int]) -> None:
    for number, file in zip(numbers, files, strict=True):
        os.dup2(file, number)
        os.close(file)


def exit_statuses(method: str, functions: list[Callable[[], None]]) -> list[int]:
    """Run functions at the same time, in processes that are started by a method of ``multiprocessing``."""
    context: Any = get_context(method)
    processes = [context.Process(target=function) for function in functions]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


def python(address: str, arguments: list[str]) -> NoReturn:
    """Do as Python does with ``-u -c CODE``, in a fork of the server; without a server in this process."""
    try:
        connection = _connect(address, [0, 1, 2])
        connection.send((arguments[-1], str(Path.cwd()), dict(os.environ)))
        connection.recv()
    except (OSError, EOFError):
        os.execv(sys.executable, [sys.executable, *arguments])
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)  # its end is to be seen there, not the end of this process
    status = connection.recv()
    if status < 0:
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", number, *tests]:
            serve(socket.socket(fileno=int(number)), tests)
        case [address, *arguments]:
            python(address, arguments)
