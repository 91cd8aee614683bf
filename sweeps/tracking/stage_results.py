"""Results of the stages of a search and their rank agreement, as recorded on the parent run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sweeps.texts.wording import counted
from sweeps.tracking.values import short


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Rank correlation between the values of the same points in two stages."""

    points: int
    """Number of points that were trained to the end in both stages."""
    tau: float | None
    """Kendall's rank correlation: 1 if both stages rank the points equally, 0 if the rankings are unrelated, -1 if they
    are opposite. None with fewer than two points."""
    low: float = -1.0
    """Lower end of the correlation's confidence interval."""
    high: float = 1.0
    """Upper end of the correlation's confidence interval."""
    confidence: float = 0.95
    """Probability that the interval contains the true correlation."""

    def describe(self) -> str:
        """Describe the correlation: ``Kendall's tau 0.6 (95 % interval -0.5 to 0.97, 5 points)``."""
        if self.tau is None:
            points = f"{self.points or 'no'} point{'s'[: self.points != 1]}"
            return f"not measured, with {points} trained to the end in both"
        interval = f"{self.confidence * 100:g} % interval {short(self.low)} to {short(self.high)}"
        return f"Kendall's tau {short(self.tau)} ({interval}, {counted(self.points, 'point')})"


@dataclass(frozen=True, kw_only=True)
class StageResult:
    """Result of one stage of a search."""

    stage: int
    """Number of the stage, from 1."""
    overrides: tuple[str, ...]
    """Config overrides of the stage."""
    num_trials: int
    """Planned number of trials."""
    ended: int
    """Number of trials that have ended."""
    best: str | None = None
    """Id of the stage's best trial; None if none has a value."""
    value: float | None = None
    """Value of the stage's best trial."""
    kept: int = 0
    """Number of the stage's best points that the next stage, or the search after the last one, trains first."""
    agreement: Agreement | None = None
    """Agreement of the stage's ranking with that of the next stage, or of the search after the last stage; None if the
    latter has not begun."""

    def describe(self, last: int) -> str:
        """Return the result in a sentence, given the number of the last stage."""
        text = (
            f"stage {self.stage}: {self.ended} of {counted(self.num_trials, 'trial')} with {', '.join(self.overrides)}"
        )
        if self.best is not None and self.value is not None:
            text += f"; best {short(self.value)}, of trial {self.best}"
        if self.agreement is not None:
            following = f"stage {self.stage + 1}" if self.stage < last else "the search"
            text += f"; agreement with {following}: {self.agreement.describe()}"
        return text

    def as_json(self) -> dict[str, Any]:
        """Return the result in the form of ``--json``."""
        return {**asdict(self), "overrides": list(self.overrides)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> StageResult:
        """Return the result from the values of ``as_json``."""
        found = document["agreement"]
        agreement = None if found is None else Agreement(**found)
        return cls(**{**document, "overrides": tuple(document["overrides"]), "agreement": agreement})


def describe_stages(results: tuple[StageResult, ...]) -> list[str]:
    """Return a sentence for each stage."""
    return [each.describe(len(results)) for each in results]
