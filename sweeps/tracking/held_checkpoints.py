"""Checkpoints that are on their way into MLflow: hard links of them, since a training removes what it has superseded
before the driver has copied it, or has even heard of it.

``trials/0003/uploads/step-00000020-1f3a`` holds what ``trials/0003/step-00000020`` does. It takes no room, and
goes once it was copied or a newer checkpoint takes its place.
"""

from __future__ import annotations

import itertools
import os
import shutil
import uuid
from pathlib import Path

UPLOADS = "uploads"


def hold(checkpoint: str, root: str) -> str | None:
    """Keeps a checkpoint until ``release``; the folder with its files, or None where the file system has no hard links.

    Args:
        checkpoint: Its folder, or one in it whose files count.
        root: Folder of the trial's checkpoints.
    """
    source = Path(checkpoint)
    name = next((part for part in reversed(source.parts) if part.startswith("step-")), source.name)
    target = Path(root) / UPLOADS / f"{name}-{uuid.uuid4().hex[:8]}"
    try:
        shutil.copytree(source, target, copy_function=os.link)
    except OSError:
        shutil.rmtree(target, ignore_errors=True)
        return None
    return str(target)


def is_held(folder: str) -> bool:
    """Whether a folder was made by ``hold``."""
    return Path(folder).parent.name == UPLOADS


def release(folder: str) -> None:
    """Removes a folder that ``hold`` has made."""
    shutil.rmtree(folder, ignore_errors=True)


def release_all(trials: Path) -> None:
    """Removes what is left of all trials: reports that were dropped, since their trial had been stopped, are copied by
    nobody."""
    for uploads in itertools.chain(trials.glob(f"*/{UPLOADS}"), trials.glob(f"*/lineage-*/{UPLOADS}")):
        shutil.rmtree(uploads, ignore_errors=True)
