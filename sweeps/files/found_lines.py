"""Search for the few lines of a large file that contain a text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def lines_with(path: Path, text: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each line of a file that contains a text, with the position after it; nothing if there is no such file.

    Raises:
        OSError: The file cannot be read.
    """
    if not path.is_file():
        return
    content, end = path.read_bytes(), 0
    while (found := content.find(text, end)) >= 0:
        start, newline = content.rfind(b"\n", end, found) + 1 or end, content.find(b"\n", found)
        end = newline + 1 if newline >= 0 else len(content)
        yield end, content[start:end]
