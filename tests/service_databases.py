"""New databases of the service: copies of an empty one, since each that is made waits for the disk several times."""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path

from sqlalchemy import make_url


@functools.cache
def _empty() -> Path:
    """The file of an empty one; made once in each process, in the cache that conftest.py sets for a test run."""
    from sweeps.service.database.engine import open_database

    path = Path(os.environ["SWEEPS_CACHE"]) / "empty-service" / "service.db"
    open_database(f"sqlite:///{path}").dispose()
    return path


def make_service_database(url: str) -> str:
    """Make a database of the service, if its address is of an SQLite file that does not exist yet; returns the
    address."""
    parts = make_url(url)
    if parts.get_backend_name() == "sqlite" and not (path := Path(str(parts.database))).exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_empty(), path)
    return url
