"""What every test stands on: a working folder of its own, and third parties that are quiet and offline."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Set as this file is read, before a test module imports any of them, and inherited by subprocesses and Ray workers.
os.environ.update(
    {
        "HF_HUB_OFFLINE": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
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


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sweep leaves mlflow.db and outputs/ in the working folder: each test gets an empty one of its own."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Not the cache of the person who runs the tests."""
    os.environ["SWEEPS_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The folder of pyproject.toml."""
    return Path(__file__).resolve().parent.parent
