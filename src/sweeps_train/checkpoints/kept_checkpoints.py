"""Removal of checkpoints that a newer or a better one supersedes, while the training continues."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from sweeps_train.checkpoints.checkpoint import best_by, complete_checkpoints
from sweeps_train.checkpoints.integrity import remove_folder
from sweeps_train.config.better import Objective
from sweeps_train.files.atomic_write import unfinished


def remove_superseded(
    root: Path, keep: Sequence[str], objectives: Sequence[Objective], *, finished: bool, needed: Collection[Path] = ()
) -> None:
    """Remove checkpoints that need not be kept. ``keep`` is ``best``, ``last``, both or none: until the training is
    finished, the last one is always kept, since a retry continues from it; afterwards it is kept if there is no other.
    ``needed`` are kept for another reason."""
    checkpoints = complete_checkpoints(root)
    best = best_by(root, objectives) if "best" in keep else None
    kept = {best} if finished and "last" not in keep and best is not None else {best, checkpoints[-1]}
    for path in checkpoints:
        if path not in kept and path not in needed:
            # Renamed first: under its own name, a half removed folder would look like a checkpoint.
            remove_folder(path.rename(unfinished(path)))
