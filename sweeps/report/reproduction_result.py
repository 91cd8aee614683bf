"""Comparison of a reproduced trial with the original."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from sweeps.report.plain_console import plain_table

MOST_ROWS = 40


@dataclass(frozen=True)
class Repeated:
    """Metric of a trial in the original and in the reproduction."""

    trial: str
    metric: str
    steps: int
    """Number of steps at which both the original and the reproduction have a value."""
    first_difference: tuple[int, float, float] | None
    """First difference: step, original value, reproduced value."""
    counts: bool
    """Whether the metric is an objective, which decides whether the reproduction succeeded."""

    @property
    def equal(self) -> bool:
        return self.steps > 0 and self.first_difference is None

    def as_json(self) -> dict[str, Any]:
        difference = None
        if self.first_difference is not None:
            step, then, now = self.first_difference
            difference = {"step": step, "then": then, "now": now}
        return {
            "trial": self.trial,
            "metric": self.metric,
            "equal": self.equal,
            "steps": self.steps,
            "first_difference": difference,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Repeated:
        """Read a document of ``as_json``, which does not contain ``counts``."""
        difference = document["first_difference"]
        first = None if difference is None else (difference["step"], difference["then"], difference["now"])
        return cls(document["trial"], document["metric"], document["steps"], first, counts=False)

    def describe(self) -> str:
        if not self.steps:
            return "no step that both have"
        if self.first_difference is None:
            return f"equal at {'its one step' if self.steps == 1 else f'all {self.steps} steps'}"
        step, then, now = self.first_difference
        return f"differs from step {step}: {then:.8g} then, {now:.8g} now"


def print_repeated(repeated: Sequence[Repeated], console: Console) -> None:
    """Print a row for each metric: objectives first, and among these the ones that differ."""
    table = plain_table("trial", "metric", "came out")
    ordered = sorted(repeated, key=lambda each: (not each.counts, each.equal))
    for each in ordered[:MOST_ROWS]:
        style = "green" if each.equal else "red" if each.counts else "yellow"
        table.add_row(each.trial, each.metric, Text(each.describe(), style))
    console.print(table)
    if len(ordered) > MOST_ROWS:
        console.print(f"and {len(ordered) - MOST_ROWS} more")
