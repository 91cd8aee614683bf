"""Splits a table's rows into training and held-out ones, or into folds."""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sweeps_train.config.table import TableData
from sweeps_train.tables.columns import check_columns, column_kind, feature_names, is_text, plain
from sweeps_train.tables.csv_texts import CsvTexts
from sweeps_train.tables.encoding import Goal, class_values
from sweeps_train.tables.table_files import read_table, text_columns
from sweeps_train.tables.train_part import train_part

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

Rows = npt.NDArray[np.int64]
"""Numbers of rows."""
ZONE = re.compile(r"(?<=:\d\d)[-+]\d\d:?\d\d$")
"""Offset from UTC at the end of a moment."""


def read_split(config: TableData, goal: Goal) -> tuple[pa.Table, pa.Table]:
    """Read training and held-out rows. For a classification, the same part of each class is held out.

    Raises:
        ValueError: The files, the columns or the number of rows do not allow it.
    """
    table = with_target(config, read_table(config), "data.path", config.path)
    if config.eval_path is not None:
        held_out = read_table(config, "data.eval_path", config.eval_path, text_columns(table))
        return used_part(config, goal, table), with_target(config, held_out, "data.eval_path", config.eval_path)
    train, held_out_rows = split_rows(config, goal, table)
    return used_part(config, goal, table.take(train)), table.take(held_out_rows)


def used_part(config: TableData, goal: Goal, train: pa.Table) -> pa.Table:
    """Return the training rows that ``data.train_fraction`` selects."""
    if config.train_fraction == 1.0:
        return train
    labels = _classes(config, train) if goal == "classification" else None
    return train.take(train_part(train.num_rows, config.train_fraction, config.split_seed, labels))


def with_target(config: TableData, table: pa.Table, key: str, path: str) -> pa.Table:
    """Return the rows of a table that have a target.

    Raises:
        ValueError: A column that the config names is missing, a column cannot be learned from, or no row has a target.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    names = table.column_names
    if lacking := check_columns(config, names, key, path):
        raise ValueError(f"{lacking[0]}; it has {', '.join(names)}")
    for name in feature_names(config, names):
        column_kind(config, name, table[name])  # of all rows: a mistake may be only in the held-out ones
    target, texts = table[config.target], CsvTexts.of(config)
    missing = pc.is_null(target, nan_is_null=True)
    if texts is not None and pa.types.is_floating(target.type):  # such as -999.0
        missing = pc.or_(missing, pc.is_in(target, value_set=pa.array(texts.missing_numbers, target.type)))
    if left_out := pc.sum(missing).as_py():
        empty = "are empty" if texts is None else "are empty, or one of data.missing,"
        _log.warning(
            "%s=%s: %d of %d cells of data.target=%s %s; their rows are left out",
            key, path, left_out, table.num_rows, config.target, empty,
        )  # fmt: skip
    table = table.filter(pc.invert(missing))
    if table.num_rows == 0:
        raise ValueError(f"data.target={config.target}: {key}={path} has no row with a value in it")
    return table


def split_rows(config: TableData, goal: Goal, table: pa.Table) -> tuple[Rows, Rows]:
    """Return the row numbers of the training and the held-out rows, both ascending.

    Raises:
        ValueError: One of the two parts would be empty, or a class has a single row.
    """
    from sklearn.model_selection import GroupShuffleSplit, train_test_split

    rows = np.arange(table.num_rows)
    if config.time is not None:
        train, held_out = _last_part(config, table)
    elif config.group is not None:
        groups = _groups(config, table, 2)
        split = GroupShuffleSplit(n_splits=1, test_size=config.eval_fraction, random_state=config.split_seed)
        train, held_out = next(split.split(rows, groups=groups))
    else:
        if len(rows) < 2:
            raise ValueError(f"data.path={config.path}: has one row; two are needed, one to train and one to evaluate")
        labels = _labels(config, table, 2) if goal == "classification" else None
        try:
            train, held_out = train_test_split(
                rows, test_size=config.eval_fraction, random_state=config.split_seed, stratify=labels
            )
        except ValueError as error:
            raise ValueError(
                f"data.eval_fraction={config.eval_fraction}: with {len(rows)} rows, a class has no row to train with "
                f"or none to evaluate ({error}); change it"
            ) from error
    return np.sort(train), np.sort(held_out)


def fold_rows(config: TableData, goal: Goal, table: pa.Table, folds: int) -> list[tuple[Rows, Rows]]:
    """Return the row numbers of training and held-out rows for each fold; with a time column, each fold trains only on
    earlier rows.

    Raises:
        ValueError: There are too few rows, groups, or rows of a class.
    """
    from sklearn import model_selection

    classes = goal == "classification"
    labels = _labels(config, table, folds) if classes and config.time is None else None
    if config.time is not None:
        order, times = _by_time(config, table)
        if len(order) <= folds:
            raise ValueError(f"task.folds={folds}: the table has {len(order)} rows; use fewer folds")
        parts = model_selection.TimeSeriesSplit(n_splits=folds).split(order)
        cuts = [0, *(times.index(times[held_out[0]]) for _, held_out in parts), len(order)]
        if len({*cuts}) < len(cuts):
            raise ValueError(
                f"task.folds={folds}: data.time={config.time} has too many rows of the same time to train each fold on "
                "earlier rows only; use fewer folds, or a finer time"
            )
        return [(np.sort(order[:cut]), np.sort(order[cut:end])) for cut, end in pairwise(cuts[1:])]
    groups = None
    if config.group is not None:
        groups = _groups(config, table, folds)
        splitter = model_selection.StratifiedGroupKFold if classes else model_selection.GroupKFold
    else:
        splitter = model_selection.StratifiedKFold if classes else model_selection.KFold
    if table.num_rows < folds:
        raise ValueError(f"task.folds={folds}: the table has {table.num_rows} rows; use fewer folds")
    split = splitter(n_splits=folds, shuffle=True, random_state=config.split_seed)
    return list(split.split(np.arange(table.num_rows), labels, groups))


def _classes(config: TableData, table: pa.Table) -> list[str]:
    return [str(each) for each in class_values(config.target, table[config.target])]


def _labels(config: TableData, table: pa.Table, least: int) -> list[str]:
    """Return the classes of the rows as texts, and check that each class has at least this many rows."""
    labels = _classes(config, table)
    rarest, number = Counter(labels).most_common()[-1]
    if number < least:
        raise ValueError(
            f"data.target={config.target}: the class {rarest} has {number} row(s), and at least {least} are needed to "
            "have some in every part; remove it, or merge it with another"
        )
    return labels


def _groups(config: TableData, table: pa.Table, least: int) -> Rows:
    """Return the number of each row's group, and check that there are at least so many; rows without a group share
    one."""
    column = plain(table[str(config.group)]).combine_chunks().dictionary_encode(null_encoding="encode")
    codes: Rows = column.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    if (number := len(column.dictionary)) < least:
        raise ValueError(f"data.group={config.group}: has {number} different value(s), and {least} are needed")
    return codes


def _by_time(config: TableData, table: pa.Table) -> tuple[Rows, list[Any]]:
    """Return row numbers by time, earliest first, and the times in this order."""
    import pyarrow.compute as pc

    column = plain(table[str(config.time)])
    if missing := pc.sum(pc.is_null(column, nan_is_null=True)).as_py():  # NaN would be sorted behind the last row
        raise ValueError(f"data.time={config.time}: is missing in {missing} row(s); fill it, or remove them")
    if is_text(column.type):
        _check_order_of_texts(config, column.unique().to_pylist())
    order: Rows = pc.sort_indices(column).to_numpy().astype(np.int64)
    return order, column.take(order).to_pylist()


def _check_order_of_texts(config: TableData, times: list[str]) -> None:
    """Raise ``ValueError`` for texts whose alphabetical order may not be that of time, such as 12/31/2026: they do not
    begin with the year, or differ in their form or their time zone."""
    forms = {re.sub(r"\d", "0", ZONE.sub("", each)) + "".join(ZONE.findall(each)): each for each in times}
    wrong = next((each for form, each in forms.items() if len(forms) > 1 or not form.startswith("0000")), None)
    if wrong is not None:
        raise ValueError(
            f"data.time={config.time}: texts such as {wrong!r} cannot be sorted by time; write all dates as 2026-12-31 "
            "or 2026-12-31 08:00:00, or as numbers"
        )


def _last_part(config: TableData, table: pa.Table) -> tuple[Rows, Rows]:
    """Split by time; rows of equal time stay together."""
    order, times = _by_time(config, table)
    cut = len(order) - max(1, math.floor(len(order) * config.eval_fraction))
    first = times.index(times[cut])
    if first == 0:
        raise ValueError(
            f"data.time={config.time}: the last {1 - cut / len(order):.0%} of the rows begin at {times[cut]}, and no "
            "row is earlier; lower data.eval_fraction, or use a finer time"
        )
    return order[:first], order[first:]
