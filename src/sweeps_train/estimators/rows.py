"""Rows of a table as inputs and targets of an estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from sweeps_train.config import TableData
from sweeps_train.estimators.model import EstimatorModel
from sweeps_train.tables.encoding import Features, Goal, TableEncoding, learn_encoding
from sweeps_train.tables.split import fold_rows, read_split, used_part, with_target
from sweeps_train.tables.table_files import read_table
from sweeps_train.workers.worker_cache import cached

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Part:
    """Encoded rows and their targets."""

    features: Features
    targets: npt.NDArray[Any]


@dataclass(frozen=True)
class Split:
    """Training and held-out rows, encoded by what was learned from the training rows."""

    encoding: TableEncoding
    train: Part
    held_out: Part

    def model(self, estimator: Any, *, native: bool) -> EstimatorModel:
        """Combine an estimator with the encoding of these rows."""
        return EstimatorModel(estimator, self.encoding, native)


def held_out_split(config: TableData, goal: Goal, encoding: TableEncoding | None = None) -> Split:
    """Return training and held-out rows, read once for all trials of a long-lived worker. If the encoding of a fitted
    estimator is given, all rows are encoded by it, even if the table has changed."""
    split = cached("rows", (config, goal), lambda: _split(config, goal, *read_split(config, goal)))
    if encoding is None or split.encoding == encoding:
        return split
    return _split(config, goal, *read_split(config, goal), encoding)


def fold_splits(config: TableData, goal: Goal, folds: int) -> list[Split]:
    """Return the rows of each fold, followed by all rows as training rows; cached for a long-lived worker."""

    def make() -> list[Split]:
        table = with_target(config, read_table(config), "data.path", config.path)
        parts = fold_rows(config, goal, table, folds)
        splits = [
            _split(config, goal, used_part(config, goal, table.take(train)), table.take(held_out))
            for train, held_out in parts
        ]
        return [*splits, _split(config, goal, used_part(config, goal, table), table.slice(0, 0))]

    return cached("folds", (config, goal, folds), make)


def _split(
    config: TableData, goal: Goal, train: pa.Table, held_out: pa.Table, encoding: TableEncoding | None = None
) -> Split:
    encoding = encoding or learn_encoding(config, goal, train)
    parts = [
        Part(encoding.encode(table), encoding.targets(table, where))
        for table, where in ((train, "training"), (held_out, "held-out"))
    ]
    return Split(encoding, *parts)
