"""Checks the data files that a config names: they must exist and have the columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from sweeps.config import SweepConfig
from sweeps.errors import raise_mistakes
from sweeps.texts.suggestions import did_you_mean
from sweeps.validate.estimator_checks import known_goal
from sweeps_train.config import ClassificationTask, EstimatorTask, TableData, TextData
from sweeps_train.data.data_files import File, find_files, pieces_of, read_piece
from sweeps_train.tables.columns import check_columns, feature_names
from sweeps_train.tables.encoding import Goal, learn_encoding
from sweeps_train.tables.split import with_target
from sweeps_train.tables.table_files import read_columns, read_table, table_files

MAX_BYTES = 64 * 2**20
"""Maximum size of the files of a table that is read here; of a larger table, only the names of the columns are read."""


def check_data(config: SweepConfig) -> None:
    """Check data files on this machine. Object stores and the hub are not checked, since only workers may have access.

    Raises:
        ConfigError: The message has every mistake, one per line.
    """
    data, task = config.data, config.task
    mistakes: list[str] = []
    if isinstance(data, TableData):
        goal = known_goal(task) if isinstance(task, EstimatorTask) else cast("Goal", task.kind)
        positive_class = task.positive_class if isinstance(task, ClassificationTask | EstimatorTask) else None
        mistakes += _table_mistakes(data, goal, positive_class)
    if isinstance(data, TextData):
        mistakes += _text_mistakes(data)
    raise_mistakes(mistakes)


def _text_mistakes(data: TextData) -> list[str]:
    mistakes: list[str] = []
    for key, path in (("data.path", data.path), ("data.eval_path", data.eval_path)):
        if path is None or "://" in path or path.startswith("builtin:"):
            continue
        try:
            mistakes += _mistakes(key, path, data)
        except ValueError as error:
            mistakes.append(str(error) if str(error).startswith(key) else f"{key}={path}: {error}")
    return mistakes


def _mistakes(key: str, path: str, data: TextData) -> list[str]:
    files = find_files(key, path)
    if files is None:
        return []  # the name of a data set on the hub
    if data.eval_split is not None and data.eval_path is None and not Path(path).expanduser().is_dir():
        mistake = f"data.eval_split={data.eval_split}: is for hub data sets and folders, and {key}={path} is neither"
        return [f"{mistake}; remove it, or give data.eval_path"]
    filled = [file for file in files if file.size > 0]
    if not filled:
        return [f"{key}={path}: is empty; give files with documents"]
    described = ((file.location, _columns(file, data)) for file in filled)
    # A part of a written data set may be empty.
    location, columns = next((each for each in described if each[1] is not None), (filled[0].location, None))
    if columns is None:
        return [f"{key}={path}: {location} has no documents; give files with documents"]
    return [
        f"data.{option}={name}: {location} has no such column{hint}; it has {columns}"
        for option, name in data.columns.items()
        for hint in [did_you_mean(name, columns, listed=0)]
        if name not in columns
    ]


def _columns(file: File, data: TextData) -> list[str] | None:
    """Return the columns of the first document."""
    if file.location.endswith(".txt"):
        return ["text"]
    for piece in pieces_of(file, lines=data.lines_are_documents)[:1]:
        for document in read_piece(piece):
            return sorted(document)
    return None


def _table_mistakes(
    data: TableData, goal: Goal | None, positive_class: bool | int | str | None = None
) -> Iterator[str]:
    """Yield one line for each mistake in a table: in its files, in its columns, or a target that does not suit the
    task's goal, if that is known here. Object stores are not read, as only workers may have access."""
    for key, path in (("data.path", data.path), ("data.eval_path", data.eval_path)):
        if path is None or "://" in path:
            continue
        try:
            mistakes = [] if path.startswith("builtin:") else list(_mistakes_of_columns(data, key, path))
            yield from mistakes
            if not mistakes and goal is not None and key == "data.path" and _is_small(data, path):
                table = with_target(data, read_table(data), key, path)
                learn_encoding(data, goal, table).positive_index(positive_class)
        except ValueError as error:
            yield str(error) if str(error).startswith(("data", "task.")) else f"{key}={path}: {error}"


def _mistakes_of_columns(data: TableData, key: str, path: str) -> Iterator[str]:
    names = read_columns(data, key, path)
    for line in check_columns(data, names, key, path):
        name = line.partition("=")[2].partition(":")[0]
        yield f"{line}{did_you_mean(name, names, listed=0)}; it has {', '.join(names)}"
    if not feature_names(data, names):
        yield f"{key}={path}: has no column to predict data.target={data.target} from; it has {', '.join(names)}"


def _is_small(data: TableData, path: str) -> bool:
    """Whether a table can be read in a moment. scikit-learn's own tables do not count, since its import takes
    longer."""
    return not path.startswith("builtin:") and sum(file.size for file in table_files(data, "", path)) <= MAX_BYTES
