"""Recorded learning curves: a table with a row for each configuration and step."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.config.space import CategoricalDistribution, Distribution, OrdinalDistribution
from sweeps.errors import UserError
from sweeps.simulate.curves import Report
from sweeps.space.distributions import Lookup, Point, Space, as_sampled, contains, encode
from sweeps.suggestions import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

CONFIG_ID, STEP, ELAPSED = "config_id", "step", "elapsed_s"
"""Columns of every table, beside one for each searched path and one for each metric."""


@dataclass(frozen=True)
class RecordedTrial:
    """A configuration of a table, with its curve."""

    point: dict[str, Any]
    """Values by path, without those whose conditions do not hold."""
    reports: list[Report]
    """Its reports, in the order of steps; the curve of a trial that was stopped early is short."""


@dataclass(frozen=True)
class CurveTable:
    """All configurations of a table."""

    name: str
    """Name of the file."""
    trials: list[RecordedTrial]
    """Its configurations that lie in the space, each with at least one report."""
    omitted: int = 0
    """Number of configurations outside of the space."""
    by_point: dict[str, RecordedTrial] = field(default_factory=dict)
    """The configurations by ``point_key``."""

    @property
    def last_step(self) -> int:
        """Last step of the longest curve: the end of a trial."""
        return max(trial.reports[-1].step for trial in self.trials)

    @property
    def whole(self) -> list[RecordedTrial]:
        """The configurations that were trained to the end."""
        return [trial for trial in self.trials if trial.reports[-1].step == self.last_step]

    def metric_names(self) -> set[str]:
        """Names of all numbers that are reported."""
        return set(self.trials[0].reports[0].metrics)


def point_key(point: Point) -> str:
    """A text that is the same for equal points."""
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
        UserError: The file cannot be read, lacks a column, or none of its configurations lies in the space.
    """
    frame = _read(path)
    columns = [str(column) for column in frame.columns]
    needed = {CONFIG_ID: "names the configuration", STEP: "counts the steps", ELAPSED: "has the seconds so far"}
    needed |= dict.fromkeys(space, "is searched") | dict.fromkeys(metrics, "is needed by the search")
    for column, why in needed.items():
        if column not in columns:
            raise UserError(
                f"--simulate {path}: the table has no column {column}, which {why}{did_you_mean(column, columns)}"
            )
    numbers = [
        name
        for name in columns
        if name not in {CONFIG_ID, STEP, ELAPSED, *space} and frame[name].dtype.kind in "fiu" and lookup(name) is None
    ]
    trials, omitted = [], 0
    for _, rows in frame.sort_values(STEP, kind="stable").groupby(CONFIG_ID, sort=True):
        point = _point(rows.iloc[0].to_dict(), space, lookup)
        if point is None:
            omitted += 1
        else:
            trials.append(RecordedTrial(point, _reports(rows, numbers)))
    if not trials:
        raise UserError(
            f"--simulate {path}: none of its {omitted} configurations lies in the space of this sweep; search the "
            "ranges that were recorded"
        )
    return CurveTable(path.name, trials, omitted, {point_key(trial.point): trial for trial in trials})


def _read(path: Path) -> pd.DataFrame:
    import pandas as pd

    if not path.is_file():
        raise UserError(f"--simulate {path}: there is no such file")
    try:
        frame = pd.read_parquet(path)
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(f"--simulate {path}: is no Parquet file that can be read ({reason})") from error
    if frame.empty:
        raise UserError(f"--simulate {path}: the table has no rows")
    return frame


def _reports(rows: pd.DataFrame, numbers: Sequence[str]) -> list[Report]:
    steps, seconds = rows[STEP].to_numpy(), rows[ELAPSED].to_numpy(dtype=float)
    values = rows[list(numbers)].to_numpy(dtype=float)
    return [
        Report(int(step), float(elapsed), dict(zip(numbers, map(float, row), strict=True)))
        for step, elapsed, row in zip(steps, seconds, values, strict=True)
    ]


def _point(row: Mapping[str, Any], space: Space, lookup: Lookup) -> dict[str, Any] | None:
    """A configuration as a point of the space; None if it lies outside."""
    point: dict[str, Any] = {}
    for path, distribution in space.distributions.items():
        if not space.active(path, point, lookup):
            continue
        value = _value(distribution, row[path])
        if not contains(distribution, value):
            return None
        point[path] = as_sampled(distribution, value)
    return point


def _value(distribution: Distribution, stored: Any) -> Any:
    """A value without NumPy's type; a list or mapping among choices is stored as JSON."""
    value = stored.item() if hasattr(stored, "item") else stored
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(distribution, CategoricalDistribution | OrdinalDistribution):
        return next((choice for choice in distribution.choices if encode(choice) == value), value)
    return value
