"""One word that completes what was typed."""

from __future__ import annotations

from typing import NamedTuple


class Candidate(NamedTuple):
    """A word, and one line about it."""

    text: str
    help: str = ""
