"""Storage of a trial's checkpoints and of the files that its program writes: folders in the sweep's folder, and
artifacts in MLflow."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.compat.mlflow import artifact_files, artifact_repository
from sweeps.constants import CHECKPOINT_ARTIFACTS, CHECKPOINT_TAGS, TAG_FOLDER, TAG_SWEEP
from sweeps.files.checksums import parsed
from sweeps.files.whole_files import UNFINISHED
from sweeps.folders.sweep_folder import SWEEP_FILE
from sweeps.plan.saved_sweep import FORMAT
from sweeps.runtime.checkpoint_layout import LINEAGE, PINNED, PROGRAM
from sweeps.storage.committed_folder import withdraw
from sweeps.storage.location import is_remote, plain
from sweeps.storage.object_store import ObjectStore
from sweeps.tracking.client import reading_from
from sweeps.tracking.held_checkpoints import UPLOADS
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.store import PAGE, all_pages, tag_filter
from sweeps.tracking.sweep_run import own_start
from sweeps.tracking.uris import local_path

if TYPE_CHECKING:
    from mlflow import MlflowClient

STORED_CHECKPOINT = re.compile(rf"(({LINEAGE}\d+|{PINNED})/)?step-[^/]+")
"""Pattern of a checkpoint's path in a trial's folder; matches the beginning of the names of its objects."""


class CheckpointStorage:
    """Size and removal of the checkpoints of trials in a tracking store."""

    def __init__(self, client: MlflowClient):
        self._client = client
        self._artifact_uris: dict[str, str] = {}

    def size(self, record: SweepRecord, trial: TrialRecord) -> int | None:
        """Return the bytes of all checkpoints of a trial; None if it has none. Hard-linked files count once."""
        folders = [*storage_folders(record, trial)]
        stored = sum(size for _, size in stored_checkpoints(record, trial))
        repository, local = self._artifacts(record, trial)
        remote = 0
        if local is not None:
            folders += [local / CHECKPOINT_ARTIFACTS] if (local / CHECKPOINT_ARTIFACTS).is_dir() else []
        elif repository is not None:
            remote = _remote_size(repository)
        if not folders and not remote and not stored:
            return None
        files: dict[tuple[int, int], int] = {}
        for folder in folders:
            for parent, _, names in os.walk(folder):
                for name in names:
                    with suppress(FileNotFoundError):  # a running sweep has just removed it
                        status = Path(parent, name).lstat()
                        if stat.S_ISREG(status.st_mode):
                            files[status.st_dev, status.st_ino] = status.st_size
        return sum(files.values()) + remote + stored

    def remove(self, record: SweepRecord, trial: TrialRecord, *, run: bool) -> None:
        """Remove a trial's checkpoints and the tags that name them; with ``run``, also its MLflow run."""
        folders = list(storage_folders(record, trial))
        stored = [store for store, _ in stored_checkpoints(record, trial)]
        tags = self._client.get_run(trial.run_id).data.tags
        for tag in CHECKPOINT_TAGS.values():
            if tag in tags and (_names_removed(tags[tag], folders) or _is_in(tags[tag], stored)):
                self._client.delete_tag(trial.run_id, tag)
        repository, local = self._artifacts(record, trial)
        if local is not None:
            shutil.rmtree(local / CHECKPOINT_ARTIFACTS, ignore_errors=True)
        elif repository is not None and _remote_size(repository):
            repository.delete_artifacts(CHECKPOINT_ARTIFACTS)
        for folder in folders:
            # A half removed folder must not have a checkpoint's name.
            renamed = folder.with_name(folder.name + UNFINISHED)
            folder.rename(renamed)
            shutil.rmtree(renamed)
        for store in stored:
            withdraw(store)
        if run:
            self._client.delete_run(trial.run_id)

    def _artifacts(self, record: SweepRecord, trial: TrialRecord) -> tuple[Any, Path | None]:
        """Return where a run's artifacts are: (None, their folder) on this machine, otherwise (MLflow's interface to
        them, None). Both are None for a run that a user has deleted."""
        if trial.run_id not in self._artifact_uris:
            self._look_up(record)
        uri = self._artifact_uris.get(trial.run_id)
        if uri is None:
            return None, None
        if (folder := local_path(uri)) is not None:
            return None, folder
        return artifact_repository(uri, self._client.tracking_uri), None

    def _look_up(self, record: SweepRecord) -> None:
        experiments, filters = [record.mlflow.experiment_id], tag_filter({TAG_SWEEP: record.sweep})
        with reading_from(self._client.tracking_uri):
            runs = all_pages(
                lambda token: self._client.search_runs(experiments, filters, max_results=PAGE, page_token=token)
            )
        self._artifact_uris |= {run.info.run_id: run.info.artifact_uri for run in runs}


def sweep_folder(record: SweepRecord) -> Path | None:
    """Return a sweep's folder if it is on this machine and belongs to this sweep; else None. A later sweep may have its
    name and folder, and another tracking store."""
    folder = Path(record.tags.get(TAG_FOLDER, ""))
    if not folder.is_absolute():
        return None
    try:
        document = parsed((folder / SWEEP_FILE).read_bytes())
        own = FORMAT.brought_forward(document, str(folder / SWEEP_FILE))["name"]
    except (OSError, ValueError, KeyError):
        return None
    is_own = own == record.sweep and own_start(folder) in (None, round(1000 * record.started))
    return folder if is_own else None


def storage_folders(record: SweepRecord, trial: TrialRecord) -> Iterator[Path]:
    """Yield the folders in the sweep's folder that hold a trial's checkpoints or its program's files, but not its
    reports."""
    folder = sweep_folder(record)
    if folder is None or not trial.trial or os.sep in trial.trial or trial.trial.startswith("."):
        return
    own = folder / "trials" / trial.trial
    for folder in (own, *sorted(own.glob(f"{LINEAGE}*"))):
        found = (*sorted(folder.glob("step-*")), folder / PROGRAM)
        yield from (path for path in found if path.is_dir() and not path.is_symlink())
    for links in (PINNED, UPLOADS):
        yield from (path for path in sorted(own.glob(f"{links}/step-*")) if path.is_dir())


def sweep_store(record: SweepRecord) -> ObjectStore | None:
    """Return the place of a sweep's folder in an object store; None if it is not in one."""
    location = record.tags.get(TAG_FOLDER, "")
    return ObjectStore(location) if is_remote(location) else None


def stored_checkpoints(record: SweepRecord, trial: TrialRecord) -> Iterator[tuple[ObjectStore, int]]:
    """Yield the places of a trial's checkpoints in an object store, with their sizes in bytes; includes incomplete
    uploads.

    Raises:
        OSError: The store does not answer.
    """
    store = sweep_store(record)
    if store is None or not trial.trial or "/" in trial.trial or trial.trial.startswith("."):
        return
    sizes: dict[str, int] = {}
    for name, size in (store / "trials" / trial.trial).names().items():
        if found := STORED_CHECKPOINT.match(name):
            sizes[found[0]] = sizes.get(found[0], 0) + size
    for checkpoint, size in sorted(sizes.items()):
        yield store / "trials" / trial.trial / checkpoint, size


def _is_in(uri: str, stores: Sequence[ObjectStore]) -> bool:
    return any(f"{plain(uri)}/".startswith(f"{plain(store.uri)}/") for store in stores)


def _names_removed(uri: str, folders: Sequence[Path]) -> bool:
    """Whether a checkpoint's URI points to one of MLflow's artifacts, or into one of the folders."""
    path = local_path(uri)
    return uri.startswith("runs:/") or (path is not None and any(path.is_relative_to(folder) for folder in folders))


def _remote_size(repository: Any) -> int:
    return sum(max(1, file.file_size or 0) for file in artifact_files(repository, CHECKPOINT_ARTIFACTS))
