"""Fixtures of every test: a working folder of its own, and third parties that are quiet and offline."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from allowed_skips import pytest_addoption, pytest_sessionfinish
from base_folder import use_memory
from fork_server import fork_test_processes
from postgres import pytest_configure, pytest_unconfigure
from stores import SHARED

# Fixtures import what they need: tests of the training library also run where there is neither Ray nor MLflow.
if TYPE_CHECKING:
    import execnet
    from postgres import Postgres
    from ray_nodes import RayNodes
    from recording import Server
    from running import Done
    from sqlalchemy import Engine

__all__ = ["pytest_addoption", "pytest_configure", "pytest_sessionfinish", "pytest_unconfigure"]  # hooks of pytest

use_memory()


class Loggers(dict[str, logging.Logger | logging.PlaceHolder]):
    """Python's loggers by name, all of which pytest reads in each phase of a test. A thread, such as one of a service,
    may add loggers meanwhile, since it imports a library."""

    def values(self) -> list[logging.Logger | logging.PlaceHolder]:  # type: ignore[override]
        return [*super().values()]


logging.root.manager.loggerDict = Loggers(logging.root.manager.loggerDict)

gc.disable()  # while everything is imported, of which nothing is garbage; see `pytest_collection_finish`

# Otherwise every test process compiles all tests anew, and so do the processes that they start with our packages.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Set as this file is read, before a test module imports any of them, and inherited by subprocesses and Ray workers.
os.environ.update(
    {
        "HF_HUB_OFFLINE": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray's default is 15. With it the workers of a sweep did not start within 200 s beside three processes that
        # compute; with the niceness of the tests they took 41 s.
        "RAY_worker_niceness": "0",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
        # Trainings without Ray run on the CPU where there is a GPU, too.
        "ACCELERATE_TORCH_DEVICE": "cpu",
        # Libraries that compute read it when they are loaded. With a thread for each core they wait for each other on a
        # busy machine: a product of matrices of 120 rows took 15 ms of processor time instead of 0.1.
        "OMP_NUM_THREADS": "1",
        # Otherwise tokenizers warn whenever a process that has used them forks.
        "TOKENIZERS_PARALLELISM": "false",
        # Text for a terminal is the same on every machine.
        "COLUMNS": "120",
        "NO_COLOR": "1",
    }
)

# Where the person who runs the tests has work in progress: no test may join that cluster or write to that server.
for name in ("RAY_ADDRESS", "MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID"):
    os.environ.pop(name, None)

# A shell lets what it starts with `&` ignore SIGINT, and child processes inherit that; the tests of Ctrl-C send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


SLOW_TIMEOUT_S = 600


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[execnet.XSpec]) -> None:
    """Collect the tests once for all processes of pytest-xdist."""
    fork_test_processes(config, specs)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give slow tests a longer timeout than the others."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))


def pytest_collection_finish() -> None:
    """Leave imported objects out of garbage collections, which would search half a million of them for a second, and
    make collections rarer: by Python's defaults they take a tenth of a test's processor time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sweep leaves mlflow.db and outputs/ in the working folder: each test gets an empty one of its own."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(autouse=True)
def _device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests that are marked ``gpu`` train on the GPU."""
    if request.node.get_closest_marker("gpu"):
        monkeypatch.delenv("ACCELERATE_TORCH_DEVICE")


@pytest.fixture(scope="session", autouse=True)
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of this run of the tests, for all its processes; and not the cache of the person who runs them."""
    os.environ["SWEEPS_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    os.environ[SHARED] = str(folder)
    return folder


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Event loop in which anyio's plugin runs tests that are coroutines."""
    return "asyncio"


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The folder of pyproject.toml."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def digits(shared_folder: Path) -> Done:
    """The sweep ``first`` of four trials, as a user's first one: it makes the store, runs the preflight and
    ends with a report. Tests may read it and what it left, and add sweeps to its store."""
    from running import SHORT, run_once

    tokens = ("conf=digits", "search.num_trials=4", *SHORT, "--name=first")
    return run_once(shared_folder / "digits", *tokens, report=True, new_store=True, within_s=800)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Function that runs ``python -m sweeps ...`` in this process; its exit status, stdout and stderr."""
    from sweeps.cli import run_command

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sweeps", *arguments])  # provenance records the command
        status, _ = run_command(arguments)
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[RayNodes]:
    """A Ray cluster without nodes yet."""
    from ray_nodes import RayNodes

    nodes = RayNodes(tmp_path)
    yield nodes
    nodes.stop()


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    from stores import make_store

    make_store(tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture
def uri_of_untried_tables(uri: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store whose tables have a version with which our SQL was not tested: MLflow's client reads and writes it."""
    from sweeps.tracking import sqlite_file

    monkeypatch.setattr(sqlite_file, "TRIED_SCHEMAS", frozenset())
    return uri


@pytest.fixture
def server(uri: str, tmp_path: Path) -> Iterator[Server]:
    from recording import Server

    server = Server(tmp_path)
    yield server
    server.kill()


@pytest.fixture(scope="session")
def postgres() -> Postgres:
    from postgres import Postgres, program

    if program("initdb") is None:
        pytest.skip("needs PostgreSQL: apt-get install -y postgresql")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("needs psycopg: pip install -e '.[dev]'")
    return Postgres()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def service_database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of a new database for the service."""
    from postgres import EMPTY
    from service_databases import make_service_database

    if request.param == "sqlite":
        return make_service_database(f"sqlite:///{tmp_path}/service.db")
    postgres: Postgres = request.getfixturevalue("postgres")
    return postgres.database(EMPTY)


@pytest.fixture
def engine(service_database: str) -> Iterator[Engine]:
    """A new database for the service, open."""
    from sweeps.service.database.engine import open_database

    engine = open_database(service_database)
    yield engine
    engine.dispose()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes a file system of so many KiB, which can really be full."""
    folders: list[Path] = []

    def mount(kib: int) -> Path:
        folder = tmp_path / f"disk-{len(folders)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a file system that can be full needs root: {done.stderr.strip()}")
        folders.append(folder)
        return folder

    yield mount
    for folder in folders:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
