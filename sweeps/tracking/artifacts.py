"""Reads a run's artifacts: its small text files, and the names in its folders. The functions raise
``TrackingUnreachable`` if the store does not answer."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from tempfile import TemporaryDirectory

from sweeps.compat.mlflow import artifact_repository, download_file
from sweeps.compose import Composition
from sweeps.constants import COMPOSITION_ARTIFACT
from sweeps.errors import TrackingUnreachable
from sweeps.files.versions import Format
from sweeps.tracking.client import connect, reading_from
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.uris import absolute

COMPOSITION = Format(())
"""Format versions of ``COMPOSITION_ARTIFACT``."""

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


def recorded_composition(record: SweepRecord) -> Composition | None:
    """Return the composition recorded in a sweep's MLflow run; None if an earlier version recorded the sweep. Releases
    up to 0.2 have recorded ``***`` for values that are named like a secret."""
    text = read_text(record.mlflow.tracking_uri, record.mlflow.run_id, COMPOSITION_ARTIFACT)
    if text is None:
        return None
    document = COMPOSITION.brought_forward(json.loads(text), f"{record.sweep}: {COMPOSITION_ARTIFACT}")
    return Composition.from_json(document).recorded_at(record.mlflow.tracking_uri)


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
