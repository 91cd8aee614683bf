"""Hard links that keep checkpoints until their upload, because the training may delete a superseded checkpoint before.

``trials/0003/uploads/step-00000020-1f3a`` has the files of ``trials/0003/step-00000020``. The links take no space, and
are removed after the upload or when a newer checkpoint replaces this one.
"""

from __future__ import annotations

import itertools
import os
import shutil
import uuid
from pathlib import Path

UPLOADS = "uploads"


def hold(checkpoint: str, root: str) -> str | None:
    """Link the files of a checkpoint, or of a folder in it, into the folder of the trial's checkpoints, to keep them
    until ``release``. Return the folder of links, or None if the file system has no hard links, or a file cannot be
    linked."""
    source = Path(checkpoint)
    name = next((part for part in reversed(source.parts) if part.startswith("step-")), source.name)
    target = Path(root) / UPLOADS / f"{name}-{uuid.uuid4().hex[:8]}"
    try:
        shutil.copytree(source, target, copy_function=_link)
    except OSError:
        shutil.rmtree(target, ignore_errors=True)
        return None
    return str(target)


def _link(source: str, target: str) -> None:
    """Make a hard link to a file; for a symbolic link, to its target, because a relative symbolic link would not work
    from elsewhere."""
    os.link(os.path.realpath(source), target)


def is_held(folder: str) -> bool:
    """Whether a folder was made by ``hold``."""
    return Path(folder).parent.name == UPLOADS


def held_source(folder: str) -> Path:
    """Return the folder whose files ``hold`` has linked into this one: a checkpoint, or that of a function's files in
    it. The training may have removed it."""
    step = Path(folder).parent.parent / Path(folder).name.rpartition("-")[0]
    return step / "files" if (step / "files").is_dir() else step


def release(folder: str) -> None:
    """Remove a folder that was made by ``hold``."""
    shutil.rmtree(folder, ignore_errors=True)


def release_all(trials: Path) -> None:
    """Remove all remaining links of a sweep, such as those for dropped reports, whose checkpoints are never
    uploaded."""
    for uploads in itertools.chain(trials.glob(f"*/{UPLOADS}"), trials.glob(f"*/lineage-*/{UPLOADS}")):
        shutil.rmtree(uploads, ignore_errors=True)
