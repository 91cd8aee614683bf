"""Schema of ``nights`` in a schedule, whose sweeps build on earlier ones."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config import STRICT, NonNegativeFloat, PositiveFloat, PositiveInt

SeveralTimes = Annotated[int, Field(ge=0, le=100)]
FEWEST_REPEATS = 2
"""Minimum number of equal trainings to measure their noise."""


@dataclass(config=STRICT, kw_only=True)
class Champion:
    """The model in production, which every night tries to beat on its own data."""

    model: Annotated[str, Field(pattern=r"^[^/:.%\"'\\]*[^/:.%\"'\\\s][^/:.%\"'\\]*$")]
    """Name of the registered model in MLflow; created by the first night if it does not exist."""
    alias: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")] = "champion"
    """Alias of the champion's version, which moves to a better version."""
    repeats: SeveralTimes = 3
    """Number of further trainings, with new seeds, of both the champion and a better challenger, since the best of many
    trials was partly lucky. They also measure the noise. 0: decide by the night's own trials."""
    standard_deviations: PositiveFloat = 2.0
    """A new champion must be better by this many standard deviations of the difference."""
    min_change: NonNegativeFloat = 0.0
    """Difference that a new champion must exceed regardless of the noise, in units of the metric. If equal trainings
    give equal values, the noise is 0, and any difference above rounding counts by default."""

    def __post_init__(self) -> None:
        if re.fullmatch(r"(?i)latest|v\d+", self.alias):
            raise ValueError(f"alias={self.alias}: MLflow keeps 'latest' and names like 'v1'; choose another")


@dataclass(config=STRICT, kw_only=True)
class Regression:
    """Rule for reporting that a night is worse than earlier ones."""

    standard_deviations: PositiveFloat = 3.0
    """Standard deviations by which the best value must be worse than the median of earlier nights."""
    nights: PositiveInt = 7
    """Maximum number of earlier nights to compare with."""
    min_change: NonNegativeFloat = 0.0
    """Difference that a regression must exceed regardless of the noise, in units of the metric."""


@dataclass(config=STRICT, kw_only=True)
class Nights:
    """Settings for the sweeps of a schedule that build on each other."""

    warm_start: SeveralTimes = 3
    """Number of earlier nights used for a warm start, as by ``search.warm_start``; 0: none."""
    champion: Champion | None = None
    """Model that is evaluated again on tonight's data, and replaced by a better one; default: none."""
    noise: PositiveFloat | None = None
    """Standard deviation of the metric between equal trainings; default: measured by the champion's repeats."""
    regression: Regression | None = Field(default_factory=Regression)
    """Rule for reporting a regression; null: never."""

    def __post_init__(self) -> None:
        if self.champion is not None and self.noise is None and self.champion.repeats < FEWEST_REPEATS:
            raise ValueError(
                f"champion.repeats={self.champion.repeats} measures no noise, which the comparison needs; "
                f"repeat at least {FEWEST_REPEATS} times, or set noise"
            )
