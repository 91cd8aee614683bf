"""Reads a run's artifacts: its small text files, and the names in its folders. Both functions raise
``TrackingUnreachable`` if the store does not answer."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from sweeps.tracking.client import connect


def read_text(uri: str, run_id: str, path: str) -> str | None:
    """Return a text artifact of a run; None if the run has no artifact of this name."""
    client = connect(uri)
    from mlflow.exceptions import MlflowException

    with TemporaryDirectory() as folder:
        try:
            return Path(client.download_artifacts(run_id, path, folder)).read_bytes().decode()  # keeps "\r"
        except (MlflowException, OSError):
            return None


def list_names(uri: str, run_id: str, folder: str) -> list[str]:
    """Return the names of the files in a folder of a run's artifacts; empty if there is no such folder."""
    client = connect(uri)
    from mlflow.exceptions import MlflowException

    try:
        return [Path(each.path).name for each in client.list_artifacts(run_id, folder) if not each.is_dir]
    except (MlflowException, OSError):
        return []
