"""The failed attempts of a trial, as they are written to a tag and read back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

LONGEST_TEXT = 7500
"""Characters; MLflow takes 8,000 in a tag."""
LONGEST_ERROR = 700


@dataclass(frozen=True, kw_only=True)
class FailedAttempt:
    """Why and when one attempt of a trial failed."""

    attempt: int
    """Its number, from 1."""
    ended: float
    """Unix time."""
    error: str


def to_text(failures: Sequence[FailedAttempt]) -> str:
    """The latest ones, as many as a tag takes."""
    texts = [json.dumps(asdict(each) | {"error": each.error[:LONGEST_ERROR]}, ensure_ascii=False) for each in failures]
    while len(texts) > 1 and sum(len(text) + 1 for text in texts) > LONGEST_TEXT:
        del texts[0]
    return f"[{','.join(texts)}]"


def from_text(text: str) -> tuple[FailedAttempt, ...]:
    """Parses the text of ``to_text``; empty if something else has written the tag."""
    try:
        return tuple(FailedAttempt(**each) for each in json.loads(text))
    except (ValueError, TypeError):
        return ()
