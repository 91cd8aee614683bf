"""Checkpoints that a program writes, detected once they are complete."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from sweeps_train.checkpoints.integrity import remove_folder
from sweeps_train.config.command import ProgramCheckpoints

Signature = tuple[tuple[str, int, int], ...]
"""Name, size and time of each file; changes when something is written."""
LOOKS = 10
"""Maximum attempts to list files while the program removes some."""


@dataclass(frozen=True)
class ProgramCheckpoint:
    """A complete checkpoint of a program."""

    path: Path
    step: int | None
    """Last whole number in the checkpoint's name."""
    written: float
    """Unix time at which the checkpoint's last file was written."""
    files: frozenset[str]
    """Names of its files when it was found."""


class CheckpointWatch:
    """Finds complete new checkpoints; those that exist when the program starts do not count."""

    def __init__(self, settings: ProgramCheckpoints, folder: Path) -> None:
        self._settings, self._folder = settings, folder
        self._taken: dict[Path, Signature] = {path: _signature(path) for path in paths_in(folder, settings.pattern)}
        self._seen: dict[Path, tuple[Signature, float]] = {}
        """State of each candidate when it was last checked, and the time at which that state was first seen."""

    @property
    def newest(self) -> float:
        """Unix time at which the newest checkpoint that is known was written; 0 if there is none."""
        return max((changed for each in self._taken.values() for *_, changed in each), default=0) / 1e9

    def find(self, *, ended_well: bool | None = None) -> list[ProgramCheckpoint]:
        """Return the checkpoints that have become complete since the last call, in the order of writing. If the program
        has ``ended_well``, all that it has written is complete; None while it runs."""
        found = []
        for path in paths_in(self._folder, self._settings.pattern):
            signature = _signature(path)
            if signature and signature != self._taken.get(path) and self._is_complete(path, signature, ended_well):
                self._taken[path] = signature
                written = max(changed for _, _, changed in signature) / 1e9
                found.append(ProgramCheckpoint(path, _step_in(path.name), written, _names(signature)))
        return sorted(found, key=lambda each: each.written)

    def _is_complete(self, path: Path, signature: Signature, ended_well: bool | None) -> bool:
        if ended_well:
            return True
        before, since = self._seen.get(path, ((), 0.0))
        if before != signature:
            since = time.monotonic()
            self._seen[path] = signature, since
        marker = self._settings.complete
        if marker is not None and path.is_dir():
            return (path / marker).exists() and (before == signature or ended_well is not None)
        if ended_well is not None:  # it has failed, maybe while it wrote
            return time.time() - max(changed for _, _, changed in signature) / 1e9 >= self._settings.settled_s
        return before == signature and time.monotonic() - since >= self._settings.settled_s


def paths_in(folder: Path, pattern: str) -> list[Path]:
    """Return the paths in a folder that match a pattern, in order, while a program may remove some."""
    for _ in range(LOOKS - 1):
        with contextlib.suppress(FileNotFoundError):  # a folder has vanished meanwhile
            return sorted(folder.glob(pattern))
    return sorted(folder.glob(pattern))


def put_into(checkpoint: Path, folder: Path, *, move: bool = False) -> None:
    """Copy or move a checkpoint of a program, which is a file or a folder, into a folder, which is made if it does not
    exist; one of the same name is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / checkpoint.name
    if target.is_symlink():  # its target is not replaced
        target.unlink()
    if checkpoint.is_dir():
        shutil.rmtree(target, ignore_errors=True)
    if move:
        shutil.move(checkpoint, target)
    elif checkpoint.is_dir():
        shutil.copytree(checkpoint, target)
    else:
        shutil.copy2(checkpoint, target)


def put_back(checkpoint: Path, folder: Path, pattern: str, *, own: Path) -> None:
    """Put the checkpoint from which a trial continues into the folder in which its program looks for the newest one.
    Later ones there are removed, if the folder lies in the trial's ``own``: an attempt has written them that has ended
    before it reported them, maybe not whole."""
    step = _step_in(checkpoint.name)
    if step is not None and folder.resolve().is_relative_to(own.resolve()):  # other folders may have files of the user
        later = [
            each for each in paths_in(folder, pattern) if each.parent == folder and (_step_in(each.name) or 0) > step
        ]
        removed = own / ".sweeps-removed"
        removed.mkdir(exist_ok=True)  # an attempt that was killed here, or a file that is open on NFS, has left it
        for path in later:  # moved first: a half removed folder would look like a checkpoint
            with contextlib.suppress(FileNotFoundError):  # a program that is being killed may remove some, too
                path.rename(Path(tempfile.mkdtemp(dir=removed)) / path.name)
        with contextlib.suppress(OSError):  # what cannot be removed is not among the checkpoints any more
            remove_folder(removed)
    put_into(checkpoint, folder)


def set_aside(checkpoint: ProgramCheckpoint, folder: Path, *, move: bool) -> Path | None:
    """Copy or move a checkpoint into a folder of its own, and return its path there; None if the program has removed
    some of it before that was done."""

    def is_whole(path: Path) -> bool:
        return checkpoint.files <= _names(_signature(path))

    shutil.rmtree(folder, ignore_errors=True)
    aside = folder / checkpoint.path.name
    try:
        if is_whole(checkpoint.path):
            put_into(checkpoint.path, folder, move=move)
            if move or is_whole(aside):  # what was moved is nowhere else
                return aside
    except OSError:
        if is_whole(checkpoint.path):
            raise
    shutil.rmtree(folder, ignore_errors=True)
    return None


def _names(signature: Signature) -> frozenset[str]:
    return frozenset(name for name, _, _ in signature)


def _step_in(name: str) -> int | None:
    """Return the last whole number in a name; numbers with decimals are metrics.

    >>> _step_in("checkpoint-1000"), _step_in("weights.03-0.25.hdf5"), _step_in("best.h5")
    (1000, 3, None)
    """
    numbers = re.findall(r"\d+(?:\.\d+)?", re.sub(r"\.(h5|hdf5)$", "", name))
    return next((int(each) for each in reversed(numbers) if each.isdecimal()), None)


def _signature(path: Path) -> Signature:
    """Return the state of a file, or of all files of a folder, for comparison; empty if there are none or if some
    vanish meanwhile."""
    try:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        states = [(str(file.relative_to(path)), file.stat()) for file in files if file.is_file()]
    except OSError:
        return ()
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in states)
