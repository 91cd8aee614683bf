"""The checkpoint from which a training continues, on the storage or in shared memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sweeps_train.checkpoints.checkpoint import prepare_resume
from sweeps_train.snapshots.connection import HolderConnection, read_identity
from sweeps_train.workers.distributed import Workers


@dataclass(frozen=True)
class Resumption:
    """State of a training that an earlier attempt left, as one worker reads it."""

    checkpoint: Path | None = None
    """Newest complete checkpoint that rank 0 sees; None if there is none."""
    state: Path | None = None
    """Folder from which this worker reads the checkpoint: the checkpoint itself, or its copy in shared memory with the
    same content."""
    holder: HolderConnection | None = None
    """Rank 0's connection to the process that holds a snapshot, if there is one."""


def find_resumption(root: Path | None, workers: Workers, note: Callable[[str], None], *, resume: bool) -> Resumption:
    """Find the checkpoint from which a training continues, if it has a folder for checkpoints; all workers must call
    this. ``note`` tells the user about damaged checkpoints.

    Raises:
        ValueError: There is a checkpoint, and ``resume`` is false.
    """
    if root is None:
        return Resumption()
    name = memory = holder = None
    if workers.rank == 0:
        holder = HolderConnection.to_existing(root)
        held = holder.state.written if holder is not None and holder.state.is_stored else None
        found = prepare_resume(root, note, held)
        name = None if found is None else found.name
        if holder is not None and found is not None and found.absolute() == held:
            memory = holder.folder, holder.identity, holder.files
    name, memory = workers.broadcast((name, memory))
    if name is None:
        return Resumption(holder=holder)
    if not resume:
        raise ValueError(
            f"checkpoint_folder={root} holds checkpoints of an earlier training; "
            "continue from them with resume=True, or give an empty folder"
        )
    path = root / name  # whose path may differ between nodes
    is_here = memory is not None and read_identity(memory[0]) == memory[1]
    return Resumption(path, memory[2] if memory is not None and is_here else path, holder)
