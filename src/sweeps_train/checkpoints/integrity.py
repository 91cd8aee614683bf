"""Integrity of checkpoints: detects files that a power cut or a faulty disk has truncated or changed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import zlib
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from sweeps_train.files.atomic_write import UNFINISHED

SEAL_FILE = "files.json"
"""File in a checkpoint with size and CRC-32 of every other file, by path."""
REPLACED = f"-replaced{UNFINISHED}"
"""Suffix of a checkpoint's folder while another one takes its place."""
DAMAGED = ".damaged"
"""Suffix of a damaged checkpoint's folder."""
_NAMES = [
    "ESTALE",
    "ETIMEDOUT",
    "ENOTCONN",
    "EHOSTDOWN",
    "EHOSTUNREACH",
    "EACCES",
    "EPERM",
    "EKEYEXPIRED",
    "EMFILE",
    "ENFILE",
    "ENOMEM",
]
FOR_A_MOMENT = [getattr(errno, name) for name in _NAMES if hasattr(errno, name)]  # EKEYEXPIRED is of Linux alone
"""Errors of the operating system that do not show that a file is damaged: its server or mount is away, the user's
access has expired, or this machine lacks open files or memory."""
BLOCK = 2**20
FLUSHED_AT_ONCE = 32
"""Maximum number of files that are written to disk at once, each by its own thread, while a checkpoint is sealed."""


class ChecksummedFile:
    """A file written from beginning to end, with its checksum computed on the way."""

    def __init__(self, path: Path):
        self.sum = [0, 0]
        """Size in bytes and CRC-32 so far."""
        self._opened = path.open("wb")

    def write(self, content: bytes | memoryview) -> int:
        """Append bytes."""
        size, checksum = self.sum
        self.sum = [size + memoryview(content).nbytes, zlib.crc32(content, checksum)]
        return self._opened.write(content)

    def flush(self) -> None:
        """Hand the written data to the operating system."""
        self._opened.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()


def seal(folder: Path, sums: Mapping[str, list[int]] | None = None) -> None:
    """Flush all files of a folder to the disk, and write their sizes and checksums into it. Files whose ``sums`` are
    known, by the path within the folder, are not read again."""
    files = {str(file.relative_to(folder)): file for file in sorted(folder.rglob("*")) if file.is_file()}
    with ThreadPoolExecutor(FLUSHED_AT_ONCE) as threads:  # at once: a file system's journal commits them together
        found = threads.map(_flush, files.values(), map((sums or {}).get, files))
    content = dict(zip(files, found, strict=True))
    seal_file = folder / SEAL_FILE
    seal_file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    _flush(seal_file)
    flush_folder(folder)


def finish(folder: Path, path: Path, sums: Mapping[str, list[int]] | None = None) -> None:
    """Seal a checkpoint whose files are all written under a temporary name (``folder``), and rename it to its final
    name, in place of an earlier one. Files whose ``sums`` are known are not read again."""
    seal(folder, sums)
    replaced = path.with_name(path.name + REPLACED)
    if path.exists():
        path.rename(replaced)
    folder.rename(path)
    flush_folder(path.parent)
    remove_folder(replaced)


def remove_folder(folder: Path) -> None:
    """Remove a folder if it exists, except for files that another program has open on a network file system, which keep
    the folder until they are closed.

    Raises:
        OSError: It cannot be removed for another reason.
    """
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EBUSY):
            raise


def clean_up(root: Path) -> None:
    """Remove what a killed process has left unfinished in a folder of checkpoints. A checkpoint that was to be replaced
    gets its name again if the new one did not take its place."""
    for left in root.glob(f"step-*{UNFINISHED}"):
        replaced = left.with_name(left.name.removesuffix(REPLACED))
        if left == replaced or replaced.exists():
            remove_folder(left)
        else:
            left.rename(replaced)


def find_damage(folder: Path, without: Collection[str] = ()) -> str | None:
    """Describe the damage of a sealed folder; None if it is intact. The files ``without`` may be missing.

    Raises:
        OSError: The folder cannot be read now, but may be intact.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "weights").write_bytes(b"1234")
    >>> seal(folder)
    >>> _ = (folder / "weights").write_bytes(b"12")
    >>> find_damage(folder)
    'weights has 2 bytes of 4'
    """
    try:
        content: dict[str, list[int]] = json.loads((folder / SEAL_FILE).read_text(encoding="utf-8"))
        if not content:
            return f"{SEAL_FILE} names no file"
        for name, (size, checksum) in content.items():
            if name in without:
                continue
            if (folder / name).stat().st_size != size:
                return f"{name} has {(folder / name).stat().st_size} bytes of {size}"
            if _size_and_checksum(folder / name)[1] != checksum:
                return f"{name} does not match its checksum"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (AttributeError, OSError, TypeError, ValueError) as error:  # flipped bits may leave other valid JSON
        if isinstance(error, OSError) and error.errno in FOR_A_MOMENT:
            raise
        return f"it cannot be read ({error})"
    return None


def read_sealed(folder: Path, name: str) -> bytes:
    """Return the content of a file, verified against the seal of its folder if there is one.

    Raises:
        ValueError: The content is not what was written.
    """
    content = (folder / name).read_bytes()
    try:
        sums = json.loads((folder / SEAL_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return content
    if not isinstance(sums, dict) or sums.get(name) != [len(content), zlib.crc32(content)]:
        raise ValueError(f"{folder / name} does not match its checksum")
    return content


def with_checksum_of(seal: bytes, name: str, content: bytes) -> bytes:
    """Return the content of a seal file, updated for the new content of one file."""
    sums = json.loads(seal) | {name: [len(content), zlib.crc32(content)]}
    return json.dumps(sums, indent=1).encode() + b"\n"


def replace_sealed(folder: Path, name: str, content: bytes) -> None:
    """Replace a file of a sealed folder. Its files may be hard links to those of another folder, which keep their
    content."""
    sealed = with_checksum_of((folder / SEAL_FILE).read_bytes(), name, content)
    for file, new in ((folder / name, content), (folder / SEAL_FILE, sealed)):
        file.unlink()
        file.write_bytes(new)
        _flush(file)


def quarantine(folder: Path) -> Path:
    """Rename a damaged checkpoint, so that no training continues from it but a person can inspect it."""
    target = folder.with_name(folder.name + DAMAGED)
    shutil.rmtree(target, ignore_errors=True)
    return folder.rename(target)


def flush_folder(folder: Path) -> None:
    """Flush the entries of a folder (its files' names) to the disk, if its file system can do so."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # of file systems such as CIFS
            raise
    finally:
        os.close(descriptor)


def _flush(file: Path, known: list[int] | None = None) -> list[int]:
    """Flush a file to the disk, and return its size and checksum."""
    found = _size_and_checksum(file) if known is None else known
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
    return found


def _size_and_checksum(file: Path) -> list[int]:
    """Return the size in bytes and the CRC-32 of a file."""
    size = checksum = 0
    with file.open("rb") as opened:
        while block := opened.read(BLOCK):
            size += len(block)
            checksum = zlib.crc32(block, checksum)
    return [size, checksum]
