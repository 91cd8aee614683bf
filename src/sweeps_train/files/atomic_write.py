"""Files and folders that appear under their name only when they are complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNFINISHED = ".unfinished"
"""Suffix of a file or folder that is being written or removed."""


def unfinished(path: Path) -> Path:
    """Return the temporary path beside ``path`` to which its contents are first written.

    >>> unfinished(Path("step-00000020")).name
    'step-00000020.unfinished'
    """
    return path.with_name(path.name + UNFINISHED)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``, and rename it to ``path`` when the block ends without an error.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with atomic_write(folder / "sizes.json") as temporary:
    ...     _ = temporary.write_text("{}")
    ...     (folder / "sizes.json").exists()
    False
    >>> (folder / "sizes.json").read_text()
    '{}'
    """
    temporary = unfinished(path)
    yield temporary
    temporary.replace(path)
