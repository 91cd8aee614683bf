"""One completion of the typed text."""

from __future__ import annotations

from typing import NamedTuple


class Candidate(NamedTuple):
    """Word that completes the typed text, with a one-line description."""

    text: str
    help: str = ""
