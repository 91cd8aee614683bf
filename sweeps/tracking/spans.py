"""Periods in which a trial held workers, with the workers' hosts, as recorded in a tag."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sweeps.tracking.values import latest_as_json, read_tag


@dataclass(frozen=True, kw_only=True)
class Span:
    """Period from the assignment of workers to a trial until they have finished it. All times are Unix times."""

    held: float
    """Time at which workers were assigned to the trial; some may have to start first."""
    trained: float
    """Time at which the workers began to train the trial."""
    ended: float | None = None
    """Time at which the workers finished; None while they train, or if no worker was left to report it."""
    workers: tuple[str, ...] = ()
    """Host of each worker, by rank; with GPUs also the GPU's index, as ``host/0``."""


def to_text(spans: Sequence[Span]) -> str:
    """Return the latest spans as the text of a tag, as many as fit."""
    texts = [json.dumps(asdict(span), separators=(",", ":")) for span in spans]
    return latest_as_json(texts)


def may_be_cut(spans: Sequence[Span]) -> bool:
    """Whether the tag with these spans may lack earlier ones: one more span would not fit into it."""
    return bool(spans) and to_text([spans[0], *spans]) == to_text(spans)


def from_text(text: str | None) -> tuple[Span, ...]:
    """Return the spans in a tag; empty if there are none, or the tag has other content."""
    return read_tag(text, lambda spans: tuple(Span(**each | {"workers": tuple(each["workers"])}) for each in spans), ())
