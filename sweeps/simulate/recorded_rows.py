"""Rows of a file of learning curves, checked when they are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sweeps.config.space import FloatDistribution, IntDistribution
from sweeps.errors import UserError
from sweeps.space.space import Lookup, Space
from sweeps.texts.suggestions import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

CONFIG_ID, STEP, ELAPSED = "config_id", "step", "elapsed_s"
"""Columns of every table, in addition to one for each searched path and one for each metric."""
UNNAMED_INDEX = "__index_level_"
"""Prefix of the name of a column to which pandas writes an unnamed index."""
LARGEST = 1e150
"""Maximum absolute value of a metric that can be computed with: its square is still finite."""


def check_is_file(path: Path) -> None:
    """Check that the file exists.

    Raises:
        UserError: There is no such file.
    """
    if path.is_dir():
        raise UserError(f"--simulate {path}: is a folder; give the Parquet file in it")
    if not path.is_file():
        raise UserError(f"--simulate {path}: there is no such file; give a table of `show SWEEP --curves FILE`")


def read_rows(path: Path, space: Space, lookup: Lookup, metrics: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """Read the rows of a file of learning curves, each once, by configuration and in the order of their steps.

    Returns:
        The rows, and the names of the columns that hold metrics.

    Raises:
        UserError: The file cannot be read, lacks a column, or holds a value that cannot be part of a learning curve.
    """
    check_is_file(path)
    frame = _read(path)
    _check_columns(path, list(frame.columns), space, metrics)
    others = {CONFIG_ID, STEP, ELAPSED, *space}
    numbers = [
        name
        for name in frame.columns
        if name in metrics or (name not in others and _is_number(frame[name]) and lookup(name) is None)
    ]
    rows = _Rows(path, frame[[CONFIG_ID, STEP, ELAPSED, *space, *numbers]])
    rows.check_names()
    rows.check_types([STEP, ELAPSED, *metrics, *_ranges(space, frame)])
    rows.check_steps()
    rows.check_seconds()
    rows.check_points(space)
    rows.check_metrics(metrics)
    return rows.frame, numbers


def _read(path: Path) -> pd.DataFrame:
    import pyarrow.parquet

    try:
        # With its metadata, pandas would turn columns into an index and use number types without NaN.
        frame: pd.DataFrame = pyarrow.parquet.ParquetFile(path).read().to_pandas(ignore_metadata=True)
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(f"--simulate {path}: cannot be read as a Parquet file ({reason})") from error
    if frame.empty:
        raise UserError(f"--simulate {path}: the table has no rows")
    return frame.loc[:, ~frame.columns.str.startswith(UNNAMED_INDEX)]


def _check_columns(path: Path, columns: Sequence[str], space: Space, metrics: Sequence[str]) -> None:
    """Check that each column that the search needs exists exactly once."""
    needed = {CONFIG_ID: "names the configuration", STEP: "counts the steps", ELAPSED: "has the seconds so far"}
    needed |= dict.fromkeys(space, "is searched") | dict.fromkeys(metrics, "is needed by the search")
    for column, why in needed.items():
        if column not in columns:
            raise UserError(
                f"--simulate {path}: the table has no column {column}, which {why}{did_you_mean(column, columns)}"
            )
    for column in columns:
        if columns.count(column) > 1:
            raise UserError(
                f"--simulate {path}: the table has {columns.count(column)} columns named {column}; keep one"
            )


def _is_number(column: pd.Series[Any]) -> bool:
    return column.dtype.kind in "fiu"


def _ranges(space: Space, frame: pd.DataFrame) -> list[str]:
    """Return the searched ranges of numbers. A range whose condition never holds may have no values, and then no
    type."""
    return [
        path
        for path, distribution in space.distributions.items()
        if isinstance(distribution, FloatDistribution | IntDistribution) and frame[path].notna().any()
    ]


class _Rows:
    """Rows of a table, with a check for each kind of column; each check raises a ``UserError`` for the first wrong
    value."""

    def __init__(self, path: Path, frame: pd.DataFrame):
        self._path, self.frame = path, frame

    def check_names(self) -> None:
        """Check that each row names its configuration."""
        missing = self.frame[CONFIG_ID].isna().to_numpy()
        if missing.any():
            raise self._mistake(
                CONFIG_ID,
                f"row {missing.argmax() + 1} has none ({missing.sum():,} of {len(missing):,} rows have none); name the "
                "configuration in each row",
            )

    def check_types(self, numbers: Sequence[str]) -> None:
        """Check that the named columns contain numbers, and no column contains lists."""
        for column in self.frame.columns:
            values = self.frame[column]
            if column in numbers and not _is_number(values):
                kind = {"b": "truth values", "M": "dates", "m": "durations"}.get(values.dtype.kind, "text or objects")
                first = int(values.notna().to_numpy().argmax())
                raise self._mistake(column, f"holds {kind}, not numbers ({self._has(first, column)}); write numbers")
            nested = values.map(lambda value: isinstance(value, list | dict | np.ndarray)).to_numpy()
            if values.dtype.kind == "O" and nested.any():
                first = int(nested.argmax())
                raise self._mistake(
                    column, f"holds lists or mappings ({self._has(first, column)}); write each as a text, in JSON"
                )

    def check_steps(self) -> None:
        """Check that steps are counted from 1, and no configuration has two reports of a step."""
        steps = self.frame[STEP].to_numpy(dtype=float)
        self._check(STEP, np.isfinite(steps) & (steps == np.round(steps)) & (steps >= 1), "whole numbers from 1 on")
        rows = self.frame.drop_duplicates().sort_values([CONFIG_ID, STEP], kind="stable", ignore_index=True)
        self.frame, twice = rows, rows.duplicated([CONFIG_ID, STEP]).to_numpy()
        if twice.any():
            step = rows[STEP].iloc[int(twice.argmax())]
            raise self._mistake(
                STEP,
                f"{self._named(int(twice.argmax()))} has several rows for step {step:.17g}, which differ; keep one, or "
                f"give each training a {CONFIG_ID} of its own",
            )

    def check_seconds(self) -> None:
        """Check that the seconds of a configuration grow with its steps."""
        seconds = self.frame[ELAPSED].to_numpy(dtype=float)
        falls = (self.frame.groupby(CONFIG_ID)[ELAPSED].diff() < 0).to_numpy()
        self._check(ELAPSED, np.isfinite(seconds) & (seconds > 0), "the seconds of training so far, above 0")
        self._check(ELAPSED, ~falls, "the seconds of training so far, never fewer than at an earlier step")

    def check_points(self, space: Space) -> None:
        """Check that each configuration has one point."""
        for path in space:
            several = (self.frame.groupby(CONFIG_ID)[path].nunique(dropna=False) > 1).to_numpy()
            if several.any():
                name = self.frame[CONFIG_ID].unique()[several.argmax()]
                values = self.frame.loc[self.frame[CONFIG_ID] == name, path].unique()
                raise self._mistake(
                    path,
                    f"configuration {name} has both {_shown(values[0])} and {_shown(values[1])}; write one value in "
                    f"all of its rows, or give each training a {CONFIG_ID} of its own",
                )

    def check_metrics(self, metrics: Sequence[str]) -> None:
        """Check that each metric has values. Those of diverged trainings may be infinite or NaN."""
        for metric in metrics:
            values = self.frame[metric].to_numpy(dtype=float)
            finite = np.isfinite(values)
            if not finite.any():
                raise self._mistake(
                    metric, f"no row has a finite number ({self._has(0, metric)}); write the values that were reported"
                )
            self._check(
                metric, ~finite | (np.abs(values) <= LARGEST), f"at most {LARGEST:g}, and inf for a diverged training"
            )

    def _check(self, column: str, right: npt.NDArray[np.bool_], wanted: str) -> None:
        if not right.all():
            first = int((~right).argmax())
            at = "" if column == STEP else f" at step {self.frame[STEP].iloc[first]:.17g}"
            raise self._mistake(column, f"{self._has(first, column)}{at}; write {wanted}")

    def _has(self, index: int, column: str) -> str:
        return f"{self._named(index)} has {_shown(self.frame[column].iloc[index])}"

    def _named(self, index: int) -> str:
        return f"configuration {self.frame[CONFIG_ID].iloc[index]}"

    def _mistake(self, column: str, text: str) -> UserError:
        return UserError(f"--simulate {self._path}: column {column}: {text}")


def _shown(value: Any) -> str:
    """Format a value for a message."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 60 else f"{text[:60]}..."
