"""Notes of a trial's workers for the user, as recorded in a tag."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sweeps.tracking.values import latest_as_json, read_tag

LONGEST = 700


@dataclass(frozen=True, kw_only=True)
class TimedNote:
    at: float
    """Unix time at which the note arrived."""
    text: str


def to_text(notes: Sequence[TimedNote]) -> str:
    """Return the latest notes as the text of a tag, as many as fit."""
    return latest_as_json(
        [json.dumps(asdict(each) | {"text": each.text[:LONGEST]}, ensure_ascii=False) for each in notes]
    )


def from_text(text: str | None) -> tuple[TimedNote, ...]:
    """Return the notes in a tag; empty if there are none, or the tag has other content."""
    return read_tag(text, lambda notes: tuple(TimedNote(**each) for each in notes), ())
