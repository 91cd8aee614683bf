"""Stage of a planned search: its trials' values, its files, and how values are rescaled for the next stage, such as the
learning rate with the width of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeps.compose import Composition
from sweeps.config.space import FloatDistribution, IntDistribution
from sweeps.search.study_version import STUDY_FILE
from sweeps.space.distributions import nearest
from sweeps.space.space import Point, Space
from sweeps.validate.config_checks import phases_of
from sweeps.validate.stage_checks import rescaling_factor

Factors = Mapping[str, float]
"""Factors of searched values, by their path."""


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
    """Return the name of a stage's study file; for None, that of the search after the stages."""
    return STUDY_FILE if stage is None else stage.study_file


def stage_factors(composition: Composition) -> list[Factors]:
    """Return the factors from each stage to the next, and from the last stage to the sweep, for a checked sweep."""
    stages = composition.config.search.stages
    if not any(stage.rescale for stage in stages):
        return [{} for _ in stages]
    phases = phases_of(composition)
    return [
        {path: rescaling_factor(rule, phases[index], phases[index + 1]) for path, rule in stage.rescale.items()}
        for index, stage in enumerate(stages)
    ]


def rescaled(point: Mapping[str, Any], factors: Factors, space: Space) -> Point:
    """Return a point of a stage with its values in the next stage, within the ranges of the space."""
    values = dict(point)
    for path, factor in factors.items():
        if path in values:
            distribution = space[path]
            assert isinstance(distribution, FloatDistribution | IntDistribution)
            values[path] = nearest(distribution, values[path] * factor)
    return values
