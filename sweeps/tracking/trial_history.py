"""Parts of a trial's record that are JSON in tags of its run: periods in which it held workers, failed attempts, notes
of its workers, and the weights in its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sweeps.tracking.values import latest_as_json, short

LONGEST_TEXT = 700
"""Maximum number of characters of an error or a note in a tag."""


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

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Span:
        return cls(**{**document, "workers": tuple(document["workers"])})


def spans_as_json(spans: Sequence[Span]) -> str:
    """Return the latest spans as the text of a tag, as many as fit."""
    return latest_as_json([vars(span) for span in spans])


def may_be_cut(spans: Sequence[Span]) -> bool:
    """Whether the tag with these spans has no room for one more, so that earlier spans may be missing."""
    return bool(spans) and spans_as_json([spans[0], *spans]) == spans_as_json(spans)


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

    def as_json(self) -> dict[str, Any]:
        """Return the attempt for a tag, with a shortened reason."""
        return asdict(self) | {"error": self.error[:LONGEST_TEXT]}


@dataclass(frozen=True, kw_only=True)
class TimedNote:
    """Note of a trial's workers for the user."""

    at: float
    """Unix time at which the note arrived."""
    text: str

    def as_json(self) -> dict[str, Any]:
        """Return the note for a tag, shortened."""
        return asdict(self) | {"text": self.text[:LONGEST_TEXT]}


@dataclass(frozen=True)
class Weights:
    """Step and objective values of the weights in a checkpoint, which may differ from those of the trial's best
    report."""

    step: int
    """Number of optimizer steps done."""
    values: tuple[float, ...]
    """Values of the objectives that were reported at this step; empty if there was no report."""

    def describe(self, metrics: tuple[str, ...]) -> str:
        """Describe the step and the values: ``step 40, with eval/loss 0.52``."""
        values = ", ".join(f"{name} {short(value)}" for name, value in zip(metrics, self.values, strict=False))
        return f"step {self.step}, {f'with {values}' if values else 'at which nothing was reported'}"

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Weights:
        return cls(int(document["step"]), tuple(map(float, document["values"])))
