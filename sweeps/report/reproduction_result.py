"""What came out when a trial was run once more, beside what came out then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

MOST_ROWS = 40


@dataclass(frozen=True)
class Repeated:
    """A metric of a trial, then and now."""

    trial: str
    metric: str
    steps: int
    """At which both have a value."""
    first_difference: tuple[int, float, float] | None
    """Step, value then, value now."""
    counts: bool
    """Whether it is an objective, which decides whether the same came out."""

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
        """What ``as_json`` wrote; whether it counts is not in it."""
        difference = document["first_difference"]
        first = None if difference is None else (difference["step"], difference["then"], difference["now"])
        return cls(document["trial"], document["metric"], document["steps"], first, counts=False)

    def describe(self) -> str:
        """In words."""
        if not self.steps:
            return "no step that both have"
        if self.first_difference is None:
            return f"equal at {'its one step' if self.steps == 1 else f'all {self.steps} steps'}"
        step, then, now = self.first_difference
        return f"differs from step {step}: {then:.8g} then, {now:.8g} now"


def print_repeated(repeated: Sequence[Repeated], console: Console) -> None:
    """What differs first; what decides before what does not."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("trial", "metric", "came out"):
        table.add_column(name)
    ordered = sorted(repeated, key=lambda each: (not each.counts, each.equal))
    for each in ordered[:MOST_ROWS]:
        style = "green" if each.equal else "red" if each.counts else "yellow"
        table.add_row(each.trial, each.metric, Text(each.describe(), style))
    console.print(table)
    if len(ordered) > MOST_ROWS:
        console.print(f"and {len(ordered) - MOST_ROWS} more")
