"""Whether a checkpoint is what was written: a power cut or a disk may leave files that are shorter, or other, though
their folder has its name.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SEAL_FILE = "files.json"
"""In a checkpoint: size and CRC-32 of every other file in it, by path."""
DAMAGED = ".damaged"
"""Ends the name of a checkpoint that is not what was written."""
BLOCK = 1 << 20


def seal(folder: Path) -> None:
    """Puts all files of a folder on the disk itself, and writes down what they are."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    with ThreadPoolExecutor(max(1, len(files))) as threads:  # together: a file system's journal takes them in one go
        sums = list(threads.map(_sum_on_disk, files))
    content = {str(file.relative_to(folder)): each for file, each in zip(files, sums, strict=True)}
    sealed = folder / SEAL_FILE
    sealed.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    _sum_on_disk(sealed)
    flush_folder(folder)


def damage(folder: Path) -> str | None:
    """What is wrong with a sealed folder; None if nothing is, or it was never sealed."""
    try:
        content: dict[str, list[int]] = json.loads((folder / SEAL_FILE).read_text(encoding="utf-8"))
        for name, (size, checksum) in content.items():
            if (folder / name).stat().st_size != size:
                return f"{name} has {(folder / name).stat().st_size} bytes of {size}"
            if _sum(folder / name)[1] != checksum:
                return f"{name} is not what was written"
    except FileNotFoundError as error:
        missing = Path(error.filename).name
        return None if missing == SEAL_FILE else f"{missing} is missing"
    except (OSError, ValueError) as error:
        return f"it cannot be read ({error})"
    return None


def set_aside(folder: Path) -> Path:
    """Gives a damaged checkpoint a name under which nobody goes on from it; a person may look at it."""
    aside = folder.with_name(folder.name + DAMAGED)
    shutil.rmtree(aside, ignore_errors=True)
    folder.rename(aside)
    return aside


def flush_folder(folder: Path) -> None:
    """The names in a folder to the disk itself."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sum_on_disk(file: Path) -> list[int]:
    both = _sum(file)
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
    return both


def _sum(file: Path) -> list[int]:
    """Size in bytes, and CRC-32."""
    size = checksum = 0
    with file.open("rb") as opened:
        while block := opened.read(BLOCK):
            size += len(block)
            checksum = zlib.crc32(block, checksum)
    return [size, checksum]
