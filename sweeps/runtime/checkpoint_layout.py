"""Folders of a trial's checkpoints, and of those that other trials take over.

``trials/0003`` holds ``step-00000020``, ...; after the trial has taken over another one's state for the second time,
``trials/0003/lineage-2`` does. ``trials/0007/pinned`` holds the checkpoint from which others may continue, since the
training deletes older ones. Files are shared by hard links, so that a copy takes no space.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sweeps.files import replacing
from sweeps_train.config.command import PROGRAM_FOLDER

PINNED = "pinned"
PROGRAM = PROGRAM_FOLDER
"""Folder of the files of a trial's program, beside its checkpoints."""
METRICS_FILE = "metrics.json"
"""Metrics that were reported at a checkpoint's step."""


@dataclass(frozen=True)
class Origin:
    """Checkpoint of another trial from which a trial continues."""

    trial: str
    step: int
    """Optimizer steps done at the checkpoint."""
    num_exploits: int
    """Number of times that the trial has taken over another one's state, this time included."""


def checkpoint_folder(trials: Path, trial: str, num_exploits: int) -> Path:
    """Folder in which a trial saves its checkpoints.

    Args:
        trials: Folder of all trials.
        trial: Number of the trial.
        num_exploits: Number of times that it has taken over another one's state.
    """
    return trials / trial / f"lineage-{num_exploits}" if num_exploits else trials / trial


def checkpoint_folders(trials: Path, trial: str) -> Iterator[Path]:
    """All folders in which a trial has saved checkpoints, in their order."""
    for num_exploits in itertools.count():
        folder = checkpoint_folder(trials, trial, num_exploits)
        if not folder.is_dir():
            return
        yield folder


def pin(trials: Path, trial: str, num_exploits: int, step: int) -> bool:
    """Keep the checkpoint of a trial's step for others, until the next one is pinned; returns whether it exists."""
    checkpoint = _checkpoint(checkpoint_folder(trials, trial, num_exploits), step)
    kept = _checkpoint(trials / trial / PINNED, step)
    if not checkpoint.is_dir():
        return False
    before = list(kept.parent.glob("step-*"))
    new = kept.with_name("new")
    _link(checkpoint, new)
    for older in before:
        shutil.rmtree(older)
    new.rename(kept)
    return True


def is_pinned(trials: Path, origin: Origin) -> bool:
    """Whether a trial can continue from an origin."""
    return _checkpoint(trials / origin.trial / PINNED, origin.step).is_dir()


def take_over(trials: Path, trial: str, origin: Origin, metric: str, mode: str) -> None:
    """Give another trial's pinned checkpoint to a trial, and remove the trial's own ones except the best and newest.

    No worker may be saving there.

    Args:
        trials: Folder of all trials.
        trial: Number of the trial that continues.
        origin: The other trial's checkpoint, which must be pinned.
        metric: Metric that decides which checkpoint is best.
        mode: Whether ``min`` or ``max`` of it is best.
    """
    folder = checkpoint_folder(trials, trial, origin.num_exploits)
    shutil.rmtree(folder, ignore_errors=True)  # left by an earlier session
    _link(_checkpoint(trials / origin.trial / PINNED, origin.step), _checkpoint(folder, origin.step))
    before = [
        path
        for each in range(origin.num_exploits)
        for path in sorted(checkpoint_folder(trials, trial, each).glob("step-*"))
    ]
    losses = {path: loss for path in before if (loss := _loss(path, metric, mode)) is not None}
    best = min(losses, key=lambda path: losses[path], default=None)
    for path in before[:-1]:  # the newest may still be on its way into MLflow
        if path != best:
            shutil.rmtree(path)


def release(trials: Path, trial: str) -> None:
    """Remove the pinned checkpoint of a trial from which no other one can continue any more."""
    shutil.rmtree(trials / trial / PINNED, ignore_errors=True)


def _checkpoint(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}"


def _loss(checkpoint: Path, metric: str, mode: str) -> float | None:
    """The metric at a checkpoint, negated if larger is better; None if it has none, or that is no number."""
    try:
        metrics: dict[str, float] | None = json.loads((checkpoint / METRICS_FILE).read_text(encoding="utf-8"))
    except OSError:
        return None
    value = (metrics or {}).get(metric, math.nan)
    return None if math.isnan(value) else value if mode == "min" else -value


def _link(source: Path, target: Path) -> None:
    """Give a folder a further name, completely or not at all."""
    with replacing(target) as unfinished:
        shutil.copytree(source, unfinished, copy_function=_link_file)


def _link_file(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another device, or a file system without links
        shutil.copy2(source, target)
