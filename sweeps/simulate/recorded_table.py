"""Table of recorded learning curves, with a row for each configuration and step."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sweeps.config.space import FloatDistribution, IntDistribution
from sweeps.errors import UserError
from sweeps.simulate.recorded_rows import CONFIG_ID, ELAPSED, STEP, read_rows
from sweeps.space.distributions import boundary_values, encode
from sweeps.space.space import Lookup, Point, Space, point_of
from sweeps.tracking.values import to_text

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Report:
    """One report of a trial."""

    step: int
    """Number of optimizer steps done."""
    elapsed_s: float
    """Seconds of training so far."""
    metrics: Mapping[str, float]
    """Metrics, and progress in the units of schedulers (``epochs``, ``samples``), by name."""


@dataclass(frozen=True)
class RecordedTrial:
    """Configuration of a table, with its learning curve."""

    point: dict[str, Any]
    """Values by path, without those whose conditions do not hold."""
    reports: list[Report]
    """Reports of the configuration, in the order of steps; a trial that was stopped early has a short curve."""


@dataclass(frozen=True)
class CurveTable:
    """All configurations of a table."""

    name: str
    """Name of the file."""
    trials: list[RecordedTrial]
    """Configurations that lie in the space, each with at least one report."""
    omitted: int = 0
    """Number of configurations outside of the space."""
    by_point: dict[str, RecordedTrial] = field(default_factory=dict)
    """The configurations by ``point_key``."""

    @cached_property
    def last_step(self) -> int:
        """Last step of the longest curve, which is the end of a trial."""
        return max(trial.reports[-1].step for trial in self.trials)

    @cached_property
    def whole(self) -> list[RecordedTrial]:
        """The configurations that were trained to the end."""
        return [trial for trial in self.trials if trial.reports[-1].step == self.last_step]

    def length(self, resource: str) -> float:
        """Return the length of a whole training.

        Args:
            resource: ``evaluations``, ``steps`` or the name of a reported number.
        """
        if resource == "steps":
            return self.last_step
        if resource == "evaluations":
            return max(len(trial.reports) for trial in self.whole)
        return max(trial.reports[-1].metrics[resource] for trial in self.whole)

    def metric_names(self) -> set[str]:
        """Return the names of all reported numbers."""
        return set(self.trials[0].reports[0].metrics)


def point_key(point: Point) -> str:
    """Return a string that is the same for equal points."""
    return json.dumps({path: encode(value) for path, value in point.items()}, sort_keys=True)


def read_table(path: Path, space: Space, lookup: Lookup, metrics: Sequence[str]) -> CurveTable:
    """Read a table of learning curves.

    Args:
        path: A Parquet file with the columns ``config_id``, ``step``, ``elapsed_s``, one for each path of the space and
            one for each metric; further columns of numbers are metrics as well.
        space: Space of the search.
        lookup: Returns the config's own value at a path.
        metrics: Metrics that the search needs.

    Raises:
        UserError: The file cannot be read, lacks a column, holds a value that cannot be part of a learning curve, or
            none of its configurations lies in the space.
    """
    frame, numbers = read_rows(path, space, lookup, metrics)
    trials: list[RecordedTrial] = []
    outside: list[str] = []
    reports = _reports(frame, numbers)
    firsts = np.flatnonzero(~frame[CONFIG_ID].duplicated())  # a configuration's rows follow each other
    rows: list[dict[Any, Any]] = frame[[CONFIG_ID, *space]].iloc[firsts].to_dict("records")
    for row, first, end in zip(rows, firsts, [*firsts[1:], len(frame)], strict=True):
        point, wrong = point_of(space, partial(_value, space, row), lookup)
        if wrong:
            path_outside, value = next(iter(wrong.items()))
            outside.append(f"configuration {row[CONFIG_ID]} has {path_outside}={value}")
        else:
            trials.append(RecordedTrial(point, reports[first:end]))
    if not trials:
        raise UserError(
            f"--simulate {path}: none of its {len(outside)} configurations lies in the space of this sweep "
            f"({outside[0]}); search the ranges that were recorded"
        )
    return CurveTable(path.name, trials, len(outside), {point_key(trial.point): trial for trial in trials})


def _reports(rows: pd.DataFrame, numbers: Sequence[str]) -> list[Report]:
    steps, seconds = rows[STEP].to_numpy(), rows[ELAPSED].to_numpy(dtype=float)
    values = rows[list(numbers)].to_numpy(dtype=float)
    return [
        Report(int(step), float(elapsed), dict(zip(numbers, map(float, row), strict=True)))
        for step, elapsed, row in zip(steps, seconds, values, strict=True)
    ]


def _value(space: Space, row: Mapping[str, Any], path: str) -> Any:
    """Return a value of a row, converted from NumPy's type and to the choice or constant of the space: a table may hold
    a list or mapping as JSON, an integer as a float if other rows lack it, and any of numbers and strings as JSON."""
    distribution, stored = space[path], row[path]
    value = stored.item() if hasattr(stored, "item") else stored
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(distribution, FloatDistribution | IntDistribution):
        return value
    choices = boundary_values(distribution)
    forms = ((choice, form(choice)) for form in (to_text, encode) for choice in choices)
    return next((choice for choice, form in forms if form == value), value)
