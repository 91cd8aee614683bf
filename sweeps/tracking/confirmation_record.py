"""Result of training the best trials of a sweep again with other seeds, as recorded on the parent run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from sweeps.texts.wording import counted
from sweeps.tracking.mlflow_characters import LONGEST_TAG
from sweeps.tracking.values import short

LONGEST_REASON = 700


@dataclass(frozen=True, kw_only=True)
class Contender:
    """Result of one of the compared best trials, from its repeats."""

    trial: str
    """Id of the trial."""
    runs: int
    """Number of repeats that count."""
    mean: float | None = None
    """Mean of the repeats' values; None before the first comparison, and for a trial that failed."""
    low: float | None = None
    """Lower end of the mean's confidence interval."""
    high: float | None = None
    """Upper end of the mean's confidence interval."""
    lost_to: str | None = None
    """Trial that was significantly better."""
    failed: str | None = None
    """Reason why the contender cannot win: one of its repeats failed."""

    def describe(self, confidence: float) -> str:
        """Describe the mean with its interval: ``0.2113 (95 % interval 0.208 to 0.2146, 3 repeats)``."""
        runs = counted(self.runs, "repeat")
        if self.mean is None or self.low is None or self.high is None:
            return runs
        interval = f"{confidence * 100:g} % interval {short(self.low)} to {short(self.high)}"
        return f"{short(self.mean)} ({interval}, {runs})"


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """Result so far of comparing the best trials by their repeats, with the winner if it is known."""

    contenders: tuple[Contender, ...]
    """The compared trials, best first; those that can still win are ordered by their means."""
    winner: str | None = None
    """Trial with the best mean; None if the confirmation has not ended, or no trial was confirmed."""
    reason: str | None = None
    """Reason why there is no winner."""
    confidence: float = 0.95
    """Joint probability that all intervals are right and that the truly best contender is not excluded."""

    @property
    def tied(self) -> tuple[str, ...]:
        """The trials that are not significantly worse than the winner."""
        left = [each.trial for each in self.contenders if each.lost_to is None and each.failed is None]
        return tuple(trial for trial in left if trial != self.winner) if self.winner is not None else ()

    def of_winner(self) -> Contender | None:
        """Return the winner's mean and interval."""
        return next((each for each in self.contenders if each.trial == self.winner), None)

    def describe(self) -> str:
        """Return the result in a sentence."""
        best = self.of_winner()
        if best is None:
            return f"not confirmed: {self.reason}"
        mean = best.describe(self.confidence)
        if self.tied:
            others = ", ".join(self.tied)
            return f"trial {best.trial} has the best mean, {mean}, and is not significantly better than {others}"
        return f"trial {best.trial} wins with a mean of {mean}"

    def as_json(self) -> dict[str, Any]:
        """Return the result in the form of ``--json``."""
        return {**asdict(self), "contenders": [asdict(each) for each in self.contenders], "tied": list(self.tied)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Confirmation:
        """Return the result from the values of ``as_json``."""
        values = {key: value for key, value in document.items() if key != "tied"}
        return cls(**{**values, "contenders": tuple(Contender(**each) for each in document["contenders"])})


def to_text(result: Confirmation) -> str:
    """Return a result as the text of a tag, with as many of the best contenders as fit, and shortened reasons."""
    contenders = [replace(each, failed=each.failed and each.failed[:LONGEST_REASON]) for each in result.contenders]
    while True:
        text = json.dumps(replace(result, contenders=tuple(contenders)).as_json())
        if len(text) <= LONGEST_TAG or not contenders:
            return text
        contenders.pop()
