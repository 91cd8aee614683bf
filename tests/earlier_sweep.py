"""A sweep that release 0.1.0 left interrupted, with three ended trials and one that was stopped."""

from __future__ import annotations

import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

from sweeps.tracking.journal import JOURNAL_FILE, POSITION_FILE

EARLIER = Path(__file__).with_name("earlier") / "sweep.tar.xz"
"""The rows of its MLflow store, and its folder without what `resume` does not read; paths begin with ``@FOLDER@``."""


def unpacked(folder: Path) -> Path:
    """Unpack it into a folder, which is where it was started; returns the sweep's own folder."""
    with tarfile.open(EARLIER) as packed:
        packed.extractall(folder, filter="data")
    for path in folder.rglob("*"):
        if path.suffix in (".json", ".jsonl", ".sql", ".log"):
            path.write_text(path.read_text(encoding="utf-8").replace("@FOLDER@", str(folder)), encoding="utf-8")
    with closing(sqlite3.connect(folder / "mlflow.db")) as store:
        store.executescript((folder / "mlflow.sql").read_text(encoding="utf-8"))
    own = folder / "outputs" / "earlier"
    (own / POSITION_FILE).write_text(str((own / JOURNAL_FILE).stat().st_size), encoding="ascii")
    return own
