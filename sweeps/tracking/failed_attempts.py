"""A trial's attempts that failed or moved to other workers, as recorded in a tag."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sweeps.tracking.values import latest_as_json, read_tag

LONGEST_ERROR = 700


@dataclass(frozen=True, kw_only=True)
class FailedAttempt:
    """One attempt at a trial that failed, or that moved to other workers because its own were about to end."""

    attempt: int
    """Number of the attempt, from 1."""
    ended: float
    """Unix time of the attempt's end."""
    error: str
    """Reason for the failure or the move."""
    moved: bool = False
    """Whether the attempt moved, which does not count as a failure."""


def to_text(failures: Sequence[FailedAttempt]) -> str:
    """Return the latest failed attempts as the text of a tag, as many as fit."""
    texts = [json.dumps(asdict(each) | {"error": each.error[:LONGEST_ERROR]}, ensure_ascii=False) for each in failures]
    return latest_as_json(texts)


def from_text(text: str | None) -> tuple[FailedAttempt, ...]:
    """Return the attempts in a tag; empty if there are none, or the tag has other content."""
    return read_tag(text, lambda failures: tuple(FailedAttempt(**each) for each in failures), ())
