"""Kinds of columns, by their Arrow types: numbers, booleans, dates and categories."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Literal

from sweeps_train.config.table import TableData

if TYPE_CHECKING:
    import pyarrow as pa

ColumnKind = Literal["number", "boolean", "date", "category", "empty"]
THOUSANDS = re.compile(r"[-+]?\d{1,3}([.,' \u00a0\u202f])\d{3}(\1\d{3})*([.,]\d+)?")
"""Number with separators between its thousands, such as 1.250.000,5."""
_MONTH = (
    r"(?i:jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?"
    r"|dec(ember)?)\.?"
)
DATE = re.compile(
    r"(\d{1,2}([./-])\d{1,2}\2\d{4}|\d{1,2}/\d{1,2}/\d{2}|\d{4}([./-])\d{1,2}\3\d{1,2}"
    rf"|\d{{1,2}}[- ]{_MONTH}[- ](\d{{4}}|\d{{2}})|{_MONTH} \d{{1,2}},? \d{{4}})([ T,]+\d.*)?"
)
"""Date in a form that is read as a text, such as 12/31/2026 or 31-Dec-2026."""
AMOUNT = re.compile(
    r"[-+]?[$€£¥] ?[-+]?\d[\d.,' ]{0,40}|[-+]?\d[\d.,' ]{0,40}[$€£¥%]"
    r"|\([$€£¥]\d[\d.,]{0,40}\)|\(\d{1,3}(,?\d{3})*\.\d\d\)|\u2212\d[\d.,' ]{0,40}"
)
"""Number with a sign that is read as a text, such as $1,200.50, (12.00) for -12, or the minus sign of typography."""
OF_PANDAS = re.compile(r"Unnamed: \d+|__index_level_\d+__")
"""Name that pandas gives to a column without one, such as the row numbers that it has written before."""
MOSTLY = 0.5
"""Share of a column's distinct texts that must be numbers for its other texts to be reported as mistakes, and dates or
amounts not to be taken for categories."""


def check_columns(config: TableData, names: list[str], key: str, path: str) -> list[str]:
    """Return a message for each column that the config names and the table at the path of this ``key`` lacks, without
    suggestions of other names. Held-out rows may lack those that are no features."""
    single = [("target", config.target), ("group", config.group), ("time", config.time)]
    listed = [(option, each) for option in ("features", "drop", "categories") for each in getattr(config, option) or ()]
    wanted = [(option, name) for option, name in single if name is not None] + listed
    if key == "data.eval_path":
        features = {name for _, name in wanted} - {*config.drop} if config.features is None else config.features
        wanted = [each for each in wanted if each[0] not in ("drop", "categories") or each[1] in features]
    return [f"data.{option}={name}: {path} has no such column" for option, name in wanted if name not in names]


def feature_names(config: TableData, names: list[str]) -> list[str]:
    """Return the columns used as features, in the order of the table; those that only pandas has named must be listed.

    >>> data = TableData(kind="table", format="csv", path="a.csv", target="y", drop=["id"])
    >>> feature_names(data, ["id", "age", "y"])
    ['age']
    """
    if config.features is not None:
        return [name for name in names if name in config.features]
    left_out = {config.target, config.group, config.time, *config.drop}
    return [name for name in names if name not in left_out and not OF_PANDAS.fullmatch(name)]


def column_kind(config: TableData, name: str, column: pa.ChunkedArray) -> ColumnKind:
    """Return the kind of a column.

    Raises:
        ValueError: No model can learn from the column's type, or the column mixes numbers and texts.
    """
    from pyarrow import types

    kind = column.type
    if column.null_count == len(column):
        return "empty"
    if name in config.categories or (types.is_dictionary(kind) and (config.format == "parquet" or not is_text(kind))):
        return "category"  # in Parquet as pandas' categories
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_time(kind):
        return "number"
    if types.is_date(kind) or types.is_timestamp(kind):
        return "date"
    if is_text(kind):
        _check_texts(config, name, column)
        return "category"
    raise ValueError(
        f"data.path={config.path}: the column {name!r} is of type {kind}, which no built-in model reads; "
        f"leave it out with data.drop=[{name}]"
    )


def pandas_categories(table: pa.Table) -> set[str]:
    """Return the columns that pandas has declared as categories; Parquet files have no such type but for texts."""
    described = (table.schema.pandas_metadata or {}).get("columns", ())
    return {each.get("field_name") for each in described if each.get("pandas_type") == "categorical"}


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without Arrow's type of dictionaries, as pandas' categories have it."""
    from pyarrow import types

    return column.cast(column.type.value_type) if types.is_dictionary(column.type) else column


def is_text(kind: pa.DataType) -> bool:
    """Whether values of a type are texts, possibly stored as a dictionary."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _check_texts(config: TableData, name: str, column: pa.ChunkedArray) -> None:
    """Raise ``ValueError`` if a column of texts should be numbers (it has decimal commas, a sign such as ``$``, or some
    texts such as ``?`` for missing values) or dates."""
    texts = [each for each in column.unique().to_pylist() if each is not None]
    if config.format == "parquet" and not all(each.isdecimal() for each in texts):  # unlike codes such as 01067
        numbers = [each for each in texts if is_number(each, ".") or is_number(each, ",")]
        if len(numbers) > MOSTLY * len(texts):
            raise ValueError(
                f"data: the column {name!r} has numbers as texts ({numbers[0]}), which would be categories; write it "
                "as a column of numbers, with null for what is missing, or name it in data.categories or data.drop"
            )
    others = [each for each in texts if not is_number(each, config.decimal)]
    mistakes = [each for each in others if not is_number(each.replace("_", ""), config.decimal)]  # unlike codes: 1_101
    with_comma = [each for each in others if "," in each and is_number(each, ",")]
    are_decimals = with_comma and sum(not is_number(each, ",") for each in texts) < MOSTLY * len(texts)
    if others and all(THOUSANDS.fullmatch(each) for each in others):
        or_decimals = ", or set 'data.decimal=\",\"' if these are decimals" if are_decimals else ""
        raise ValueError(
            f"data: the column {name!r} has numbers with thousands separators ({others[0]}); write them "
            f"without{or_decimals}, or name the column in data.categories"
        )
    if are_decimals:
        raise ValueError(
            f"data.decimal={config.decimal}: the column {name!r} has numbers with a decimal comma ({with_comma[0]}); "
            f"set 'data.decimal=\",\"', or name the column in data.categories"
        )
    if mistakes and len(others) < MOSTLY * len(texts):
        shown = ", ".join(repr(each) for each in mistakes[:3]) + (", ..." if len(mistakes) > 3 else "")
        missing = f"[{', '.join(map(_quoted, [*config.missing, *mistakes[:3]]))}]"
        raise ValueError(
            f"data: the column {name!r} has numbers mixed with texts ({shown}); name the column in "
            f"data.categories, or add those that stand for a missing value: {shlex.quote(f'data.missing={missing}')}"
        )
    for pattern, what, fix in (
        (DATE, "dates", "write them as 2026-12-31 or 2026-12-31 08:00:00, in Parquet as a type of dates"),
        (AMOUNT, "numbers with a sign", "write the numbers alone"),
    ):
        found = [each for each in texts if pattern.fullmatch(each)]
        if len(found) > MOSTLY * len(texts):
            raise ValueError(
                f"data: the column {name!r} has {what} as texts ({found[0]}), which would be categories; {fix}, or "
                "name the column in data.categories or data.drop"
            )


def _quoted(text: str) -> str:
    """Quote a text for Hydra's grammar, which reads a backslash as an escape only before a quote."""
    escaped = re.sub(r'(?<!\\)(\\*+)("|\Z)', lambda found: found[1] * 2 + found[2].replace('"', '\\"'), text)
    return f'"{escaped}"'


def is_number(text: str, decimal: str) -> bool:
    """Whether a text is a number with this decimal separator; a code such as 18_24, which Python reads, is not."""
    try:
        float(text if decimal == "." else text.replace(".", "x").replace(decimal, ".", 1))
    except ValueError:
        return False
    return "_" not in text
