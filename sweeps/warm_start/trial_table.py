"""Reads trials from a table with one row for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.config.warm_start import TrialTable
from sweeps.errors import UserError
from sweeps.texts.suggestions import did_you_mean
from sweeps.tracking.client import first_cause
from sweeps.warm_start.other_trial import TABLE_SUFFIXES, OtherSearch, OtherTrial, address, existing_file
from sweeps.warm_start.parameter_names import is_end

if TYPE_CHECKING:
    import pandas as pd

STATE_COLUMNS = ("state", "status")
USED_STATES = {"complete", "completed", "done", "finished", "pruned", "success", "succeeded", "terminated"}
"""States of trials with a value, of Optuna, MLflow, W&B, Ray Tune and Sweeps, in lower case."""


def read_table(key: str, source: TrialTable, metric: str) -> OtherSearch:
    """Read a table; the source may leave the metric to the search. Every column but the value and the state may be a
    parameter.

    Raises:
        UserError: There is no such file, it cannot be read, or has no such columns.
    """
    path = existing_file(f"{key}.path", Path(address(f"{key}.path", source.path)))
    table = _read(f"{key}.path", path)
    columns = [str(column) for column in table.columns]
    metric = source.metric or metric
    value_column = _value_column(f"{key}.metric", metric, columns)
    if source.state is not None and source.state not in columns:
        raise UserError(
            f"{key}.state={source.state}: the table has no such column{did_you_mean(source.state, columns)}"
        )
    state_column = source.state or next((name for name in columns if name.lower() in STATE_COLUMNS), None)
    parameters = [column for column in columns if column not in (value_column, state_column)]
    rows = table.set_axis(columns, axis=1).to_dict("records")
    return OtherSearch(
        path.name,
        [_trial(row, parameters, value_column, state_column) for row in rows],
        source.mode,
        value_column,
        "" if value_column == metric else f"{value_column} is {metric}",
    )


def _read(key: str, path: Path) -> pd.DataFrame:
    import pandas as pd

    # By default, None and null would be missing, which may be choices.
    texts: dict[str, Any] = {"keep_default_na": False, "na_values": ["", "NA", "nan", "NaN"]}
    readers: Mapping[str, Callable[[Path], pd.DataFrame]] = {
        ".csv": lambda file: pd.read_csv(file, **texts),
        ".tsv": lambda file: pd.read_csv(file, sep="\t", **texts),
        ".parquet": pd.read_parquet,
        ".jsonl": _read_json_lines,
        ".ndjson": _read_json_lines,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UserError(f"{key}={path}: the type of the file must be one of {', '.join(TABLE_SUFFIXES)}; convert it")
    try:
        table = reader(path)
    except UnicodeDecodeError as error:
        raise UserError(f"{key}={path}: is not UTF-8 ({error}); save it as UTF-8") from error
    except Exception as error:
        raise UserError(f"{key}={path}: cannot be read as a {path.suffix} file ({first_cause(error)})") from error
    columns = [str(column) for column in table.columns]
    if len(columns) == 1 and (found := next((each for each in ";\t|" if each in columns[0]), None)):
        raise UserError(
            f"{key}={path}: has one column {columns[0]!r}, whose cells are separated by {found!r}; write it with commas"
            " (.csv) or tabs (.tsv)"
        )
    if table.empty:
        raise UserError(f"{key}={path}: the table has no rows")
    return table


def _read_json_lines(file: Path) -> pd.DataFrame:
    """Read a file in which each line is a row. Its texts stay texts, even those of numbers and dates."""
    import pandas as pd

    return pd.read_json(file, lines=True, precise_float=True, dtype=False)


def _value_column(key: str, metric: str, columns: list[str]) -> str:
    """Return the column of the metric: the one with its name, or the only one that ends in it (``metrics.loss`` for
    ``loss``), or the only one that is its end (``loss`` or MLflow's ``metrics.loss`` for ``eval/loss``).

    Raises:
        UserError: There is no such column.
    """
    if metric in columns:
        return metric
    longer = [column for column in columns if is_end(metric, column)]
    alike = longer or [column for column in columns if is_end(column.removeprefix("metrics."), metric)]
    if len(alike) == 1:
        return alike[0]
    raise UserError(f"{key}={metric}: the table has no such column{did_you_mean(metric, columns)}")


def _trial(row: Mapping[str, Any], parameters: list[str], value_column: str, state_column: str | None) -> OtherTrial:
    state = None if state_column is None else row[state_column]
    known = isinstance(state, str) and state.lower().rpartition(".")[2] in USED_STATES  # TrialState.COMPLETE
    unusable = None if state_column is None or known else f"{state_column} {state}"
    return OtherTrial({name: _plain(row[name]) for name in parameters}, _number(row[value_column]), unusable)


def _plain(value: Any) -> Any:
    """Convert a value of a column from NumPy's types; return None if it is missing."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
