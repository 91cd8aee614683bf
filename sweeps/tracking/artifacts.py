"""Reads a run's artifacts: its small text files, and the names in its folders. The functions raise
``TrackingUnreachable`` if the server does not answer, ``ArtifactsUnreachable`` if the store of the artifacts does
not."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from sweeps.compat.mlflow import artifact_repository, download_file
from sweeps.compose import Composition
from sweeps.constants import COMPOSITION_ARTIFACT
from sweeps.errors import ArtifactsUnreachable, SweepsError
from sweeps.files.versions import Format
from sweeps.texts.uri_passwords import redact_uri
from sweeps.tracking.client import connect, first_cause, outages_named, reading_from
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.uris import absolute, local_path

COMPOSITION = Format(())
"""Format versions of ``COMPOSITION_ARTIFACT``."""
NEEDED = (
    "if its address is right, this machine needs its credentials and library: for S3, AWS_ACCESS_KEY_ID, "
    "AWS_SECRET_ACCESS_KEY and pip install 'ray-sweeps[s3]'"
)
Result = TypeVar("Result")

logger = logging.getLogger(__name__)


def read_text(uri: str, run_id: str, path: str) -> str | None:
    """Return a text artifact of a run; None if the run has none of this name, or if it cannot be read although the
    store answers."""
    folder, _, name = path.rpartition("/")
    if name not in list_names(uri, run_id, folder):  # a server may answer 500 for one that does not exist, too
        return None
    client = connect(uri)
    from mlflow.exceptions import MlflowException

    with TemporaryDirectory() as target, artifact_errors_named(uri, run_id):
        file = Path(target, name)
        try:
            with reading_from(uri):
                repository = artifact_repository(client.get_run(run_id).info.artifact_uri, absolute(uri))
                download_file(repository, path, str(file))
        except (MlflowException, OSError) as error:
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

    with artifact_errors_named(uri, run_id):
        try:
            with reading_from(uri):
                found = client.list_artifacts(run_id, folder or None)
                if not found:
                    _warn_if_moved(client.get_run(run_id).info.artifact_uri)
        except (MlflowException, OSError):
            return []
    return [Path(each.path).name for each in found if not each.is_dir]


@contextmanager
def artifact_errors_named(uri: str, run_id: str) -> Iterator[None]:
    """Convert the errors of the store of a run's artifacts inside a ``with`` block, whichever store it is. Other errors
    of the operating system, such as of a full disk, stay as they are.

    Raises:
        TrackingUnreachable: The server does not answer.
        ArtifactsUnreachable: The store does not answer, or refuses.
    """
    from requests import RequestException

    try:
        with outages_named(uri):
            yield
    except SweepsError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and not isinstance(error, RequestException):
            raise
        with reading_from(uri):
            place = redact_uri(connect(uri).get_run(run_id).info.artifact_uri)
        needed = "" if place.startswith("mlflow-artifacts:") else f"; {NEEDED}"
        raise ArtifactsUnreachable(f"the artifacts in {place} cannot be read: {first_cause(error)}{needed}") from error


def if_readable(read: Callable[[], Result]) -> Result | None:
    """Return what a function reads from artifacts; None, with a warning, if their store does not answer this
    machine."""
    try:
        return read()
    except ArtifactsUnreachable as error:
        _warn_once(str(error))
        return None


def _warn_if_moved(artifact_uri: str) -> None:
    """Warn if the project folder in which a run's artifacts were recorded is not on this machine."""
    if (root := local_path(artifact_uri)) is None:
        return
    runs = root.parent.parent
    if not runs.parent.parent.exists():  # the folders of runs are made with the first artifact
        _warn_once(
            f"the artifacts are recorded in {runs}, which is not on this machine; if its folder was moved, "
            "docs/troubleshooting.md has the commands that correct MLflow's database"
        )


@lru_cache(maxsize=256)
def _warn_once(text: str) -> None:
    logger.warning("%s", text)
