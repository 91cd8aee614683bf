"""Where and when the workers of a trial trained, as it is written to a tag and read back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

LONGEST_TEXT = 7500
"""Characters; MLflow takes 8,000 in a tag."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """From the moment at which a trial was given workers to the moment at which they were done with it."""

    held: float
    """When the trial was given its workers, which may have had to be started; Unix time, as the others."""
    trained: float
    """When they began to train it."""
    ended: float | None = None
    """Nothing while they train, or when nobody was left to say it."""
    workers: tuple[str, ...] = ()
    """By rank: the host, and with GPUs ``host/0``."""


def to_text(spans: Sequence[Span]) -> str:
    """The latest spans, as many as a tag takes."""
    texts = [json.dumps(asdict(span), separators=(",", ":")) for span in spans]
    while len(texts) > 1 and sum(len(text) + 1 for text in texts) > LONGEST_TEXT:
        del texts[0]
    return f"[{','.join(texts)}]"


def from_text(text: str) -> tuple[Span, ...]:
    """The spans behind ``to_text``; none where someone else has written the tag."""
    try:
        return tuple(Span(**{**each, "workers": tuple(each["workers"])}) for each in json.loads(text))
    except (ValueError, TypeError, KeyError):
        return ()
