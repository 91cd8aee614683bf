"""Layout of the folders of a trial's checkpoints, including those from which other trials continue.

``trials/0003`` holds ``step-00000020``, ...; after the trial has continued from another trial's state twice,
``trials/0003/lineage-2`` does. ``trials/0007/pinned`` holds the checkpoint from which others may continue, since the
training deletes older ones. In a plain folder, files are shared by hard links, so that a copy takes no space; an object
store copies them by itself.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from sweeps.errors import TrialFailed
from sweeps.files.whole_files import replacing
from sweeps.storage import committed_folder
from sweeps.storage.object_store import ObjectStore
from sweeps_train.checkpoints.checkpoint_metrics import EVALUATION_FILE, METRICS_FILE, OF_ANOTHER_TRAINING, read_metrics
from sweeps_train.checkpoints.integrity import SEAL_FILE, replace_sealed
from sweeps_train.config.better import Objective, as_losses
from sweeps_train.config.command import PROGRAM_FOLDER

Folder: TypeAlias = Path | ObjectStore
"""A folder that all nodes share, or one in an object store."""
AnyFolder = TypeVar("AnyFolder", Path, ObjectStore, Folder)

PINNED = "pinned"
PROGRAM = PROGRAM_FOLDER
"""Name of the folder for the files of a trial's program, beside its checkpoints."""
LINEAGE = "lineage-"


@dataclass(frozen=True)
class Origin:
    """Checkpoint of another trial from which a trial continues."""

    trial: str
    step: int
    """Optimizer steps done at the checkpoint."""
    num_exploits: int
    """Number of times that the trial has continued from another trial's state, including this one."""


def checkpoint_folder(trials: AnyFolder, trial: str, num_exploits: int) -> AnyFolder:
    return trials / trial / f"{LINEAGE}{num_exploits}" if num_exploits else trials / trial


def trial_and_exploits(name: str) -> tuple[str, int]:
    """Return the trial to which a file in the folder of all trials belongs, and how often it had continued from another
    trial's state by then.

    >>> trial_and_exploits("0003/reports.jsonl"), trial_and_exploits("0003/lineage-2/reports.jsonl")
    (('0003', 0), ('0003', 2))
    """
    trial, _, rest = name.partition("/")
    folder = rest.partition("/")[0]
    return trial, int(folder.removeprefix(LINEAGE)) if folder.startswith(LINEAGE) else 0


def checkpoint_folders(trials: Path, trial: str) -> Iterator[Path]:
    """Yield all folders in which a trial has saved checkpoints, in order."""
    for num_exploits in itertools.count():
        folder = checkpoint_folder(trials, trial, num_exploits)
        if not folder.is_dir():
            return
        yield folder


def pin(trials: Folder, trial: str, num_exploits: int, step: int) -> bool:
    """Pin a trial's checkpoint for other trials, until its next one is pinned; return whether the checkpoint exists."""
    checkpoint = _checkpoint(checkpoint_folder(trials, trial, num_exploits), step)
    pinned = trials / trial / PINNED
    kept = _checkpoint(pinned, step)
    if not _exists(checkpoint):
        return False
    before = _checkpoints(pinned)
    _copy(checkpoint, kept)
    for older in before:
        if str(older) != str(kept):
            _remove(older)
    return True


def no_checkpoint(step: int) -> TrialFailed:
    """Return the error of a trial whose report came without the checkpoint that other trials need."""
    return TrialFailed(
        f"the report of step {step} came without a checkpoint, from which other trials could continue; with this "
        "search.scheduler.kind every report needs one"
    )


def is_pinned(trials: Folder, origin: Origin) -> bool:
    """Whether the checkpoint of an origin is pinned, so that a trial can continue from it."""
    return _exists(_checkpoint(trials / origin.trial / PINNED, origin.step))


def take_over(trials: Folder, trial: str, origin: Origin, objectives: Sequence[Objective]) -> None:
    """Make another trial's pinned checkpoint the starting point of a trial, and remove the trial's own ones except the
    best and newest.

    The copy has no metrics, because they would be the other trial's. No worker may save into the folder meanwhile.

    Args:
        origin: The other trial's checkpoint, which must be pinned.

    Raises:
        OSError: The storage does not answer; the trial's own checkpoints are complete or removed.
    """
    folder = checkpoint_folder(trials, trial, origin.num_exploits)
    _remove(folder)  # left by an earlier session
    pinned = _checkpoint(trials / origin.trial / PINNED, origin.step)
    _copy(pinned, _checkpoint(folder, origin.step), metrics=OF_ANOTHER_TRAINING)
    before = [
        checkpoint
        for each in range(origin.num_exploits)
        for checkpoint in _checkpoints(checkpoint_folder(trials, trial, each))
    ]
    whole = [checkpoint for checkpoint in before if _is_whole(checkpoint)]
    kept = [*whole[-1:], best_of(whole, objectives)]  # the newest may still be on its way into MLflow
    for checkpoint in before:
        if checkpoint not in kept:
            _remove(checkpoint)


def best_of(checkpoints: Iterable[AnyFolder], objectives: Sequence[Objective]) -> AnyFolder | None:
    """Return the best of complete checkpoints by the metrics that their own trial reported at them; of equal ones, the
    first. None if none has a value."""
    found = [(losses, each) for each in checkpoints if (losses := _losses(each, objectives)) is not None]
    return min(found, key=lambda pair: pair[0])[1] if found else None


def release(trials: Folder, trial: str) -> None:
    """Remove the pinned checkpoint of a trial when no other trial can continue from it any longer."""
    with contextlib.suppress(OSError):  # a checkpoint that stays only takes space
        _remove(trials / trial / PINNED)


def newest_step(folder: Path) -> int | None:
    steps = (each.name.removeprefix("step-") for each in folder.glob("step-*"))
    return max((int(step) for step in steps if step.isdigit()), default=None)  # without folders being written


def _checkpoint(folder: Folder, step: int) -> Folder:
    return folder / f"step-{step:08d}"


def _checkpoints(folder: Folder) -> Sequence[Folder]:
    """Return the checkpoints in a folder, in order of their steps."""
    if isinstance(folder, Path):
        return sorted(folder.glob("step-*"))
    return [folder / name for name in folder.folders() if name.startswith("step-")]


def _exists(checkpoint: Folder) -> bool:
    return checkpoint.is_dir() if isinstance(checkpoint, Path) else checkpoint.read(SEAL_FILE) is not None


def _is_whole(checkpoint: Folder) -> bool:
    """Whether a checkpoint is complete: not damaged, and not left half written by a killed worker."""
    return checkpoint.name.removeprefix("step-").isdigit() if isinstance(checkpoint, Path) else _exists(checkpoint)


def _remove(folder: Folder) -> None:
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        committed_folder.withdraw(folder)


def _losses(checkpoint: Folder, objectives: Sequence[Objective]) -> tuple[float, ...] | None:
    """Return the objectives at a checkpoint as losses; None if the first is missing, damaged, or not finite."""
    metrics: dict[str, float] | None = None
    if isinstance(checkpoint, Path):
        metrics = read_metrics(checkpoint)
    else:
        with contextlib.suppress(ValueError):
            metrics = json.loads(checkpoint.read(METRICS_FILE) or b"null")
    return as_losses(metrics or {}, objectives)


def _copy(source: Folder, target: Folder, *, metrics: bytes | None = None) -> None:
    """Copy a checkpoint to another place, completely or not at all.

    Args:
        source: The checkpoint.
        target: Place of the copy.
        metrics: Content of the copy's ``METRICS_FILE``; default: that of the source.
    """
    if isinstance(source, ObjectStore) and isinstance(target, ObjectStore):
        committed_folder.copy(source, target, {} if metrics is None else {METRICS_FILE: metrics})
        return
    assert isinstance(source, Path)
    assert isinstance(target, Path)
    with replacing(target) as unfinished:
        shutil.copytree(source, unfinished, copy_function=_link_file)
        if metrics is not None:
            (unfinished / EVALUATION_FILE).unlink(missing_ok=True)
            replace_sealed(unfinished, METRICS_FILE, metrics)


def _link_file(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another device, or a file system without links
        shutil.copy2(source, target)
