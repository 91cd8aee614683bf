"""Periods in which a trial held workers, and the hosts of these workers, as recorded in a tag."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sweeps.tracking.values import NOT_OURS, latest_as_json


@dataclass(frozen=True, kw_only=True)
class Span:
    """The time from the assignment of workers to a trial until they have finished it. All times are Unix times."""

    held: float
    """Time at which workers were assigned to the trial; some may have to start first."""
    trained: float
    """Time at which the workers began to train the trial."""
    ended: float | None = None
    """Time at which the workers finished; None while they train, or if none was left to report it."""
    workers: tuple[str, ...] = ()
    """Host of each worker, by rank; with GPUs ``host/0``."""


def to_text(spans: Sequence[Span]) -> str:
    """Return the text of the latest spans, as many as fit into a tag."""
    texts = [json.dumps(asdict(span), separators=(",", ":")) for span in spans]
    return latest_as_json(texts)


def may_be_cut(spans: Sequence[Span]) -> bool:
    """Whether earlier spans than these of a tag may not have fitted into it: one more would not."""
    return bool(spans) and to_text([spans[0], *spans]) == to_text(spans)


def from_text(text: str) -> tuple[Span, ...]:
    """Return the spans in a text from ``to_text``; empty if the tag has other content."""
    try:
        return tuple(Span(**{**each, "workers": tuple(each["workers"])}) for each in json.loads(text))
    except NOT_OURS:
        return ()
