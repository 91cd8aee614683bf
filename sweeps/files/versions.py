"""Versions of the files that Sweeps writes: older ones are converted when they are read, newer ones are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from sweeps.errors import UserError

VERSION = "version"
"""Key of a document's version; documents without it have version 1."""
WRITTEN_BY = "written_by"
"""Key of the release of ray-sweeps that wrote the document."""

Document = dict[str, Any]


class NewerVersion(UserError):
    """A file was written by a later release, which this one might misread."""


def release() -> str:
    """Return the installed release of ray-sweeps."""
    return version("ray-sweeps")


@dataclass(frozen=True)
class Format:
    """A kind of document, with the conversions of its older versions."""

    steps: Sequence[Callable[[Document], Document]]
    """Conversions: the first from version 1 to 2, and so on. The file itself stays unchanged."""

    @property
    def version(self) -> int:
        """Version that this release writes."""
        return len(self.steps) + 1

    def stamped(self, document: Document) -> Document:
        """Return a document with its version and the release that writes it."""
        return {VERSION: self.version, WRITTEN_BY: release(), **document}

    def brought_forward(self, document: Document, where: str) -> Document:
        """Return a document as it was read, converted to the current version, with the version and release that wrote
        it.

        Raises:
            NewerVersion: A later release wrote it.
        """
        found = int(document.get(VERSION, 1))
        check_not_newer(where, found, self.version, document.get(WRITTEN_BY))
        for step in self.steps[found - 1 :]:
            document = step(document)
        return document


def check_not_newer(where: str, found: int, known: int, written_by: str | None) -> None:
    """Check that this release, which reads versions up to ``known``, can read a file.

    Raises:
        NewerVersion: A later release wrote it.
    """
    if found > known:
        author = f"ray-sweeps {written_by}" if written_by else "a later ray-sweeps"
        raise NewerVersion(
            f"{where}: was written by {author}, in version {found} of its format; this is ray-sweeps {release()}, "
            f"which reads versions up to {known}. Nothing was changed; upgrade with `pip install --upgrade ray-sweeps`"
        )
