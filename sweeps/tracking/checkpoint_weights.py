"""Step and objective values of a checkpoint's weights, which may differ from those of the trial's best report."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sweeps.tracking.values import read_tag, short


@dataclass(frozen=True)
class Weights:
    """Step and objective values of the weights in a checkpoint."""

    step: int
    """Number of optimizer steps done."""
    values: tuple[float, ...]
    """Values of the objectives that were reported at this step; empty if there was no report."""

    def describe(self, metrics: tuple[str, ...]) -> str:
        """Describe the step and the values: ``step 40, with eval/loss 0.52``."""
        values = ", ".join(f"{name} {short(value)}" for name, value in zip(metrics, self.values, strict=False))
        return f"step {self.step}, {f'with {values}' if values else 'at which nothing was reported'}"


def to_text(weights: Weights) -> str:
    """Return the weights as the text of a tag, which ``from_text`` reads."""
    return json.dumps({"step": weights.step, "values": weights.values})


def from_text(text: str | None) -> Weights | None:
    """Return the weights in a tag; None if there are none, or the tag has other content."""
    return read_tag(text, lambda found: Weights(int(found["step"]), tuple(map(float, found["values"]))), None)
