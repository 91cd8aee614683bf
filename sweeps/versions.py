"""Versions of what Sweeps keeps on disk: what is older is brought forward, and what is newer is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from sweeps.errors import UserError

VERSION = "version"
"""Key of a document's version; one without it is of version 1, from before versions were kept."""
WRITTEN_BY = "written_by"
"""Key of the release of ray-sweeps that wrote it."""

Document = dict[str, Any]


class NewerVersion(UserError):
    """Something on disk was written by a later release, and this one would misread it."""


def release() -> str:
    """The installed release of ray-sweeps."""
    return version("ray-sweeps")


@dataclass(frozen=True)
class Format:
    """A kind of document that is kept, and how an older one is brought forward."""

    steps: Sequence[Callable[[Document], Document]]
    """The first turns a document of version 1 into one of version 2, and so on. They change no file."""

    @property
    def version(self) -> int:
        """The version that this release writes."""
        return len(self.steps) + 1

    def stamped(self, document: Document) -> Document:
        """The document with its version and the release that writes it."""
        return {VERSION: self.version, WRITTEN_BY: release(), **document}

    def brought_forward(self, document: Document, where: str) -> Document:
        """The document as this release would have written it, with the version and the release that it was written by.

        Args:
            document: As it was read.
            where: Its file, for the message.

        Raises:
            NewerVersion: A later release wrote it.
        """
        found = int(document.get(VERSION, 1))
        check_not_newer(where, found, self.version, document.get(WRITTEN_BY))
        for step in self.steps[found - 1 :]:
            document = step(document)
        return document


def check_not_newer(where: str, found: int, known: int, written_by: str | None) -> None:
    """
    Args:
        where: What was read.
        found: Its version.
        known: The highest version that this release reads.
        written_by: The release that wrote it, where that is known.

    Raises:
        NewerVersion: A later release wrote it.
    """
    if found > known:
        author = f"ray-sweeps {written_by}" if written_by else "a later ray-sweeps"
        raise NewerVersion(
            f"{where}: was written by {author}, in version {found} of its format; this is ray-sweeps {release()}, "
            f"which reads versions up to {known}. Nothing was changed; upgrade with `pip install --upgrade ray-sweeps`"
        )
