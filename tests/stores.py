"""New MLflow stores: copies of an empty one that MLflow has made, since its migrations take seconds."""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path


@functools.cache
def empty_store() -> Path:
    """The file of an empty store; made once in each process, in the cache that conftest.py sets for a test run."""
    from sweeps.tracking.client import connect

    path = Path(os.environ["SWEEPS_CACHE"]) / "empty" / "mlflow.db"
    path.parent.mkdir()
    connect(f"sqlite:///{path}")
    return path


def make_store(path: Path) -> None:
    """Make a store, if there is a folder and no store yet."""
    if path.parent.is_dir() and not path.exists():
        shutil.copy(empty_store(), path)
