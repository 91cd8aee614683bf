"""Reads a run's artifacts: its small text files, and the names in its folders. Both functions raise
``TrackingUnreachable`` if the store does not answer."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from sweeps.errors import TrackingUnreachable
from sweeps.texts.uri_passwords import redact_uri
from sweeps.tracking.client import connect, first_cause, reading_from


def read_text(uri: str, run_id: str, path: str) -> str | None:
    """Return a text artifact of a run; None if the run has no artifact of this name."""
    folder, _, name = path.rpartition("/")
    if name not in list_names(uri, run_id, folder):  # a server may answer alike while it cannot reach an artifact
        return None
    client = connect(uri)
    from mlflow.exceptions import MlflowException

    with TemporaryDirectory() as target:
        try:
            with reading_from(uri):
                return Path(client.download_artifacts(run_id, path, target)).read_bytes().decode()  # keeps "\r"
        except MlflowException as error:
            raise TrackingUnreachable(
                f"tracking.uri={redact_uri(uri)} does not give {path} of run {run_id}: {first_cause(error)}; try again"
            ) from error
        except OSError:  # it may not be read
            return None


def list_names(uri: str, run_id: str, folder: str) -> list[str]:
    """Return the names of the files in a folder of a run's artifacts; empty if there is no such folder."""
    client = connect(uri)
    from mlflow.exceptions import MlflowException

    try:
        with reading_from(uri):
            found = client.list_artifacts(run_id, folder or None)
    except (MlflowException, OSError):
        return []
    return [Path(each.path).name for each in found if not each.is_dir]
