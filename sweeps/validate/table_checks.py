"""Checks the table that a config names: its files, its columns, and whether its target suits the task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sweeps.texts.suggestions import did_you_mean
from sweeps_train.config import TableData
from sweeps_train.tables.columns import check_columns, feature_names
from sweeps_train.tables.table_files import read_columns, read_table, table_files

if TYPE_CHECKING:
    from sweeps_train.tables.encoding import Goal, TableEncoding

MAX_BYTES = 64 * 2**20
"""Maximum size of the files that are read here; of larger ones, only the column names are read."""


def table_mistakes(data: TableData, goal: Goal | None, positive_class: bool | int | str | None = None) -> Iterator[str]:
    """Yield one line for each mistake. Object stores are not read, since only workers may have access.

    Args:
        data: Files and columns.
        goal: Whether the target is a class or a number; None if that is not known here.
        positive_class: Value of ``task.positive_class``.
    """
    for key, path in (("data.path", data.path), ("data.eval_path", data.eval_path)):
        if path is None or "://" in path:
            continue
        try:
            mistakes = [] if path.startswith("builtin:") else list(_mistakes_of_columns(data, key, path))
            yield from mistakes
            if not mistakes and goal is not None and key == "data.path" and _is_small(data, path):
                _learn(data, goal).positive_index(positive_class)
        except ValueError as error:
            yield str(error) if str(error).startswith(("data", "task.")) else f"{key}={path}: {error}"


def _mistakes_of_columns(data: TableData, key: str, path: str) -> Iterator[str]:
    names = read_columns(data, key, path)
    for line in check_columns(data, names, path):
        name = line.partition("=")[2].partition(":")[0]
        yield f"{line}{did_you_mean(name, names)}; it has {', '.join(names)}"
    if not feature_names(data, names):
        yield f"{key}={path}: has no column to predict data.target={data.target} from; it has {', '.join(names)}"


def _is_small(data: TableData, path: str) -> bool:
    """Whether a table can be read in a moment. scikit-learn's own tables do not count, since its import takes
    longer."""
    return not path.startswith("builtin:") and sum(file.size for file in table_files(data, "", path)) <= MAX_BYTES


def _learn(data: TableData, goal: Goal) -> TableEncoding:
    """
    Raises:
        ValueError: A column cannot be learned from, or the target does not suit the task.
    """
    from sweeps_train.tables.encoding import learn_encoding
    from sweeps_train.tables.split import with_target

    return learn_encoding(data, goal, with_target(data, read_table(data), "data.path", data.path))
