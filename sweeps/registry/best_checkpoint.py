"""Fetches the model of a recorded trial's best checkpoint."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from sweeps.compat.mlflow import artifact_repository, download_file
from sweeps.constants import TAG_FOLDER
from sweeps.errors import UserError
from sweeps.runtime.checkpoint_layout import best_of, checkpoint_folders
from sweeps.storage.location import is_remote
from sweeps.storage.object_store import ObjectStore
from sweeps.tracking.artifacts import artifact_errors_named
from sweeps.tracking.client import connect
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.uris import absolute
from sweeps_train.checkpoints.checkpoint import FILES, TRAINING_FILE, complete_checkpoints
from sweeps_train.checkpoints.integrity import SEAL_FILE, find_damage
from sweeps_train.checkpoints.training_state import STATE_FILES
from sweeps_train.config.better import as_objectives

if TYPE_CHECKING:
    from mlflow import MlflowClient


def fetch_checkpoint(record: SweepRecord, trial: TrialRecord, target: Path) -> Path:
    """Return the folder of a trial's best checkpoint, or of its last one if there is no best. If it is not on this
    machine, it is downloaded to ``target``, without the training state, which is larger than the model.

    Raises:
        UserError: The checkpoint cannot be found from this machine, or is damaged.
    """
    folder = _find(record, trial, target)
    try:
        damage = find_damage(sealed, without=STATE_FILES) if (sealed := _sealed(folder)) is not None else None
    except OSError as error:
        raise UserError(
            f"trial {trial.trial} of {record.sweep}: its checkpoint cannot be read now ({error}); try again later"
        ) from error
    if damage is not None:
        raise UserError(
            f"trial {trial.trial} of {record.sweep}: its checkpoint is damaged: {damage}; choose another trial with "
            f"--trial, or `python -m sweeps retrain {record.sweep} --trial {trial.trial}` trains it again"
        )
    return folder


def _sealed(folder: Path) -> Path | None:
    """Return the folder with the list of a checkpoint's files; None if only the files that a user's own function has
    saved were uploaded, one of which may have the list's name."""
    whole = folder.parent if folder.name == FILES else folder
    is_whole = (whole / TRAINING_FILE).is_file() or (whole / FILES).is_dir()
    return whole if is_whole and (whole / SEAL_FILE).is_file() else None


def _find(record: SweepRecord, trial: TrialRecord, target: Path) -> Path:
    tracking_uri, uri, location = record.mlflow.tracking_uri, trial.checkpoint, record.tags.get(TAG_FOLDER, "")
    if uri is not None and uri.startswith("runs:/"):
        run_id, _, path = uri.removeprefix("runs:/").partition("/")
        with artifact_errors_named(tracking_uri, run_id):
            client = connect(tracking_uri)
            files = artifact_repository(client.get_run(run_id).info.artifact_uri, absolute(tracking_uri))
            _download(client, files, run_id, path, target)
        if any((target / path).iterdir()):
            return target / path
    elif uri is not None and is_remote(location):
        return _from_store(ObjectStore(uri), target / "checkpoint")
    elif uri is not None and "://" in uri and not uri.startswith("file://"):
        from mlflow.artifacts import download_artifacts

        with artifact_errors_named(tracking_uri, trial.run_id):
            return Path(download_artifacts(artifact_uri=uri, dst_path=str(target)))
    elif uri is not None and (folder := Path(unquote(urlsplit(uri).path))).is_dir():
        return folder
    if is_remote(location):
        raise UserError(
            f"trial {trial.trial} of {record.sweep} has no checkpoint in MLflow; choose another trial with --trial, or "
            f"run a sweep with tracking.checkpoints=copy, which records the checkpoints in {location}"
        )
    trials = Path(location) / "trials"
    saved = [each for folder in checkpoint_folders(trials, trial.trial) for each in complete_checkpoints(folder)]
    found = best_of(saved, as_objectives(record.metrics, record.modes))
    found = found or next((each for each in reversed(saved) if find_damage(each) is None), None)
    if found is None:
        folder = trials / trial.trial
        if uri is None:
            raise UserError(
                f"trial {trial.trial} of {record.sweep} has no checkpoint in MLflow, and none in {folder}; let its "
                "code save one, choose another trial with --trial, or run this where the sweep ran"
            )
        raise UserError(
            f"trial {trial.trial} of {record.sweep}: its checkpoint is neither in MLflow nor at {uri} nor in {folder}; "
            "run this where the sweep ran, or keep checkpoints with tracking.checkpoints=copy"
        )
    return found


def weights_note(record: SweepRecord, trial: TrialRecord) -> str:
    """Return a sentence about the saved weights if the trial's value was measured with other weights; otherwise an
    empty string."""
    other = trial.other_weights
    if other is None:
        return ""
    return f" Its weights are from {other.describe(record.metrics)}; its best value is from step {trial.best_step}."


def _from_store(store: ObjectStore, target: Path) -> Path:
    """Download a checkpoint from an object store, without the training state."""
    try:
        names = store.names()
        for name in names:
            if name not in STATE_FILES or TRAINING_FILE not in names:
                store.download(name, target / name)
    except OSError as error:
        raise UserError(f"{store}: cannot be read ({str(error).partition(chr(10))[0]}); try again later") from None
    if not names:
        raise UserError(f"{store}: the checkpoint was removed; choose another trial with --trial")
    return target


def _download(client: MlflowClient, files: Any, run_id: str, path: str, target: Path) -> None:
    """Download a folder of a run's artifacts, without the training state."""
    (target / path).mkdir(parents=True, exist_ok=True)
    found = {PurePosixPath(each.path).name: each for each in client.list_artifacts(run_id, path)}
    if TRAINING_FILE in found:  # files of a user's own program may have any name
        for name in STATE_FILES:
            found.pop(name, None)
    for each in found.values():
        if each.is_dir:
            _download(client, files, run_id, each.path, target)
        else:
            download_file(files, each.path, str(target / each.path))
