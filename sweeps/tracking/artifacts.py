"""Reads a run's artifacts: its small text files, and the names in its folders. Both functions raise
``TrackingUnreachable`` if the store does not answer."""

from __future__ import annotations

import logging
from pathlib import Path
from tempfile import TemporaryDirectory

from sweeps.compat.mlflow import artifact_repository, download_file
from sweeps.errors import TrackingUnreachable
from sweeps.tracking.client import connect, reading_from
from sweeps.tracking.uris import absolute

logger = logging.getLogger(__name__)


def read_text(uri: str, run_id: str, path: str) -> str | None:
    """Return a text artifact of a run; None if the run has none of this name, or if it cannot be read although the
    server answers.

    Raises:
        TrackingUnreachable: The server does not answer.
    """
    folder, _, name = path.rpartition("/")
    if name not in list_names(uri, run_id, folder):  # a server may answer 500 for one that does not exist, too
        return None
    client = connect(uri)
    with TemporaryDirectory() as target:
        file = Path(target, name)
        try:
            with reading_from(uri):
                repository = artifact_repository(client.get_run(run_id).info.artifact_uri, absolute(uri))
                download_file(repository, path, str(file))
        except TrackingUnreachable:
            raise
        except Exception as error:  # noqa: BLE001 - of MLflow, the file system or boto
            logger.debug("%s of run %s cannot be read: %s", path, run_id, error)
            return None
        return file.read_bytes().decode()  # keeps "\r"


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
