"""Integrity of checkpoints: a power cut or a faulty disk may leave files that are shorter than or different from what
was written."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SEAL_FILE = "files.json"
"""File in a checkpoint with size and CRC-32 of every other file, by path."""
DAMAGED = ".damaged"
"""Suffix of a damaged checkpoint's folder."""
BLOCK = 2**20


def seal(folder: Path) -> None:
    """Flush all files of a folder to the disk, and write their sizes and checksums into it."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    with ThreadPoolExecutor(max(1, len(files))) as threads:  # at once: a file system's journal commits them together
        sums = list(threads.map(_flush, files))
    content = {str(file.relative_to(folder)): each for file, each in zip(files, sums, strict=True)}
    seal_file = folder / SEAL_FILE
    seal_file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    _flush(seal_file)
    flush_folder(folder)


def find_damage(folder: Path) -> str | None:
    """Describe the damage of a sealed folder; None if it is intact, or was never sealed.

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
        for name, (size, checksum) in content.items():
            if (folder / name).stat().st_size != size:
                return f"{name} has {(folder / name).stat().st_size} bytes of {size}"
            if _size_and_checksum(folder / name)[1] != checksum:
                return f"{name} is not what was written"
    except FileNotFoundError as error:
        missing = Path(error.filename).name
        return None if missing == SEAL_FILE else f"{missing} is missing"
    except (OSError, ValueError) as error:
        return f"it cannot be read ({error})"
    return None


def quarantine(folder: Path) -> Path:
    """Rename a damaged checkpoint, so that no training continues from it but a person can look at it."""
    target = folder.with_name(folder.name + DAMAGED)
    shutil.rmtree(target, ignore_errors=True)
    return folder.rename(target)


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush(file: Path) -> list[int]:
    """Flush a file to the disk, and return its size and checksum."""
    found = _size_and_checksum(file)
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
    return found


def _size_and_checksum(file: Path) -> list[int]:
    """Size in bytes, and CRC-32."""
    size = checksum = 0
    with file.open("rb") as opened:
        while block := opened.read(BLOCK):
            size += len(block)
            checksum = zlib.crc32(block, checksum)
    return [size, checksum]
