"""A stage of a planned search: ids of its trials, their values, and its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeps.compose import Composition
from sweeps.plan.rescaling import Factors, stage_factors
from sweeps.search.study_version import STUDY_FILE


@dataclass(frozen=True)
class PlannedStage:
    """One stage of a search."""

    number: int
    """Number of the stage, from 1."""
    overrides: tuple[str, ...]
    """Overrides of the stage, as the user gave them."""
    changes: Mapping[str, Any]
    """Values by dotted path in which the stage's trials differ from those of the sweep."""
    num_trials: int
    """Number of the stage's trials."""
    keep: int
    """Number of the stage's best points that are trained first in the next stage or the sweep."""
    factors: Factors = field(default_factory=dict)
    """Factors of searched values from this stage to the next stage or the sweep."""

    @property
    def study_file(self) -> str:
        """Name of the stage's study file in the sweep's folder."""
        return f"optuna.stage{self.number}.log"

    @property
    def results_file(self) -> str:
        """Name of the file with the stage's results in the sweep's folder, which is written when the stage is over."""
        return f"stage{self.number}.json"

    def describe(self) -> str:
        """Describe the stage: ``stage 1: 30 trials with train.max_steps=100, of which the best 5 continue``."""
        what = f"{self.num_trials} trial{'s'[: self.num_trials != 1]} with {', '.join(self.overrides)}"
        return f"stage {self.number}: {what}, of which the best {self.keep} continue"

    def parameters(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values by dotted path of the trial at a point."""
        return {**self.changes, **point}


def planned_stages(composition: Composition) -> tuple[PlannedStage, ...]:
    """Return the stages of a sweep, in their order."""
    search = composition.config.search
    stages = zip(search.stages, composition.stages, search.kept, stage_factors(composition), strict=True)
    return tuple(
        PlannedStage(number, tuple(stage.overrides), changes, stage.num_trials, keep, factors)
        for number, (stage, changes, keep, factors) in enumerate(stages, start=1)
    )


def study_file(stage: PlannedStage | None) -> str:
    """Return the name of the study's file of a stage, or of the search after the stages."""
    return STUDY_FILE if stage is None else stage.study_file
