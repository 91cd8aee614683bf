"""A word that completes the typed text."""

from __future__ import annotations

from typing import NamedTuple


class Candidate(NamedTuple):
    """A word that completes the input, with a one-line description."""

    text: str
    help: str = ""
