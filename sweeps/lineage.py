"""The folders of a trial's checkpoints, of which one trial may go on where another one is.

``trials/0003`` holds ``step-00000020``, ...; after the trial has taken over another's state for the second time,
``trials/0003/lineage-2`` does. ``trials/0007/pinned`` holds the checkpoint from which others may go on, since the
training removes what it has superseded. Files are shared by hard links, so that a copy takes no room.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

PINNED = "pinned"
METRICS_FILE = "metrics.json"
"""What was reported at a checkpoint's step."""


@dataclass(frozen=True)
class Origin:
    """Where a trial goes on from."""

    trial: str
    step: int
    """Optimizer steps done there."""
    lineage: int
    """How often the trial has taken over another's state, this time included."""


def checkpoint_folder(trials: Path, trial: str, lineage: int) -> Path:
    """Where a trial saves.

    Args:
        trials: Folder of all trials.
        trial: Its number.
        lineage: How often it has taken over another's state.
    """
    return trials / trial / f"lineage-{lineage}" if lineage else trials / trial


def pin(checkpoint: Path, trials: Path, trial: str) -> None:
    """Keep a checkpoint of a trial for others, until the next one is pinned."""
    folder = trials / trial / PINNED
    kept = folder / checkpoint.name
    if not kept.exists():
        _link(checkpoint, kept)
    for older in folder.glob("step-*"):
        if older != kept:
            shutil.rmtree(older)


def take_over(trials: Path, trial: str, origin: Origin, metric: str, mode: str) -> None:
    """Put another trial's pinned checkpoint where a trial goes on from, and remove what the trial itself had, but for
    its best checkpoint. Nothing may be saving there.

    Raises:
        FileNotFoundError: The checkpoint is not there.
    """
    name = f"step-{origin.step:08d}"
    _link(trials / origin.trial / PINNED / name, checkpoint_folder(trials, trial, origin.lineage) / name)
    before = [path for each in range(origin.lineage) for path in checkpoint_folder(trials, trial, each).glob("step-*")]
    losses = {path: loss for path in before if (loss := _loss(path, metric, mode)) is not None}
    best = min(losses, key=lambda path: losses[path], default=None)
    for path in before:
        if path != best:
            shutil.rmtree(path)


def release(trials: Path, trial: str) -> None:
    """Nobody can go on from a trial any more: what is pinned of it may go."""
    shutil.rmtree(trials / trial / PINNED, ignore_errors=True)


def _loss(checkpoint: Path, metric: str, mode: str) -> float | None:
    """The metric at a checkpoint with smaller as better; None if it has none, or that is no number."""
    try:
        metrics: dict[str, float] | None = json.loads((checkpoint / METRICS_FILE).read_text(encoding="utf-8"))
    except OSError:
        return None
    value = (metrics or {}).get(metric, math.nan)
    return None if math.isnan(value) else value if mode == "min" else -value


def _link(source: Path, target: Path) -> None:
    """A folder under a further name: all of it, or nothing."""
    unfinished = target.with_name(target.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, unfinished, copy_function=_link_file)
    unfinished.rename(target)


def _link_file(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another device, or a file system without links
        shutil.copy2(source, target)
