"""The schema of ``nights`` in a schedule: how its sweeps build on each other."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config import STRICT, PositiveFloat, PositiveInt

SeveralTimes = Annotated[int, Field(ge=0, le=100)]
FEWEST_REPEATS = 2
"""Equal trainings from which their noise can be measured."""


@dataclass(config=STRICT, kw_only=True)
class Champion:
    """The model in use, which every night tries to beat on its own data."""

    model: Annotated[str, Field(pattern=r"^[^/:.%\"'\\]*[^/:.%\"'\\\s][^/:.%\"'\\]*$")]
    """Name of the registered model in MLflow; made by the first night, if there is none."""
    alias: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")] = "champion"
    """Which of its versions is the champion; it moves to a better one."""
    repeats: SeveralTimes = 3
    """When a night finds something better, both are trained to their end so many times more, with seeds that neither
    had: the best of many trials was lucky, too. The noise is measured by it. 0: decide by the night's own trials."""
    standard_deviations: PositiveFloat = 2.0
    """By how many standard deviations of the difference a new champion must be better."""

    def __post_init__(self) -> None:
        if re.fullmatch(r"(?i)latest|v\d+", self.alias):
            raise ValueError(f"alias={self.alias}: MLflow keeps 'latest' and names like 'v1'; choose another")


@dataclass(config=STRICT, kw_only=True)
class Regression:
    """When a night is taken to be worse than those before."""

    standard_deviations: PositiveFloat = 3.0
    """By how many of them its best value must be worse than the median of the nights before."""
    nights: PositiveInt = 7
    """How many nights before are looked at."""


@dataclass(config=STRICT, kw_only=True)
class Nights:
    """How the sweeps of a schedule build on each other."""

    warm_start: SeveralTimes = 3
    """Nights before, from which tonight's search learns, as ``search.warm_start`` does; 0: none."""
    champion: Champion | None = None
    """Who is tried again on tonight's data, and replaced by who is better."""
    noise: PositiveFloat | None = None
    """Standard deviation of the metric between equal trainings; default: as the champion's repeats have measured it."""
    regression: Regression | None = Field(default_factory=Regression)
    """When to report that a night is worse than those before; null: never."""

    def __post_init__(self) -> None:
        if self.champion is not None and self.noise is None and self.champion.repeats < FEWEST_REPEATS:
            raise ValueError(
                f"champion.repeats={self.champion.repeats} measures no noise, without which nobody can tell who is "
                f"better: repeat {FEWEST_REPEATS} times or more, or give the noise"
            )
