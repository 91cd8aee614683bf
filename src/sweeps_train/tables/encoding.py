"""Encodes the rows of a table as arrays, with the categories, means, scales and classes of the training rows.

An encoding is saved with its model as JSON, so that the model takes raw rows, without the table it was trained on.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

from sweeps_train.config.table import TableData
from sweeps_train.tables.columns import ColumnKind, column_kind, feature_names, is_text, pandas_categories, plain
from sweeps_train.tables.csv_texts import CsvTexts

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Goal = Literal["classification", "regression"]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
STORED = ConfigDict(extra="forbid")
ENCODING_FILE = "table.json"
DATE_PARTS = ("days", "month", "weekday", "hour")
"""Numbers that a column of dates becomes: days since 1970, and parts of the date."""
LARGEST_CLASSES = 1000
"""Maximum number of classes of a target."""


@dataclass(config=STORED, frozen=True)
class NumberFeature:
    """A numeric input: a column of numbers or booleans (0 and 1), or a part of a date."""

    column: str
    part: Literal["value", "days", "month", "weekday", "hour"]
    mean: float
    """Mean of the training rows. Without standardization, it is 0 and ``scale`` is 1."""
    scale: float
    fill: float
    """Replacement for a missing value."""
    has_missing: bool
    """Whether training rows have missing values, so that an additional input marks missing values."""
    unit: str | None = None
    """Unit to which times of day are converted. None leaves the column as it is: it has no times of day, comes from a
    CSV file, or was encoded by an earlier version, which used the file's unit."""

    @property
    def name(self) -> str:
        """Name of the input: the column's, or ``column.month``."""
        return self.column if self.part == "value" else f"{self.column}.{self.part}"


@dataclass(config=STORED, frozen=True)
class CategoryFeature:
    """A column of categories. Indices count from 1; 0 is a missing or unknown category."""

    column: str
    values: list[str]
    numeric: bool = False
    """Whether the categories are numbers in the file, so that the text ``012`` is the category ``12``."""


@dataclass(config=STORED, frozen=True)
class Classes:
    """Target of a classification."""

    kind: Literal["classes"]
    values: list[bool | int | str]
    """Classes in the order of a model's outputs."""


@dataclass(config=STORED, frozen=True)
class Amount:
    """Target of a regression, standardized by the training rows' mean and standard deviation."""

    kind: Literal["amount"]
    mean: float
    scale: float


@dataclass(config=STORED, frozen=True)
class Features:
    """Unscaled inputs of rows: numbers, NaN where missing, and indices of categories."""

    numbers: Annotated[Any, "float64 of shape (rows, numbers)"]
    categories: Annotated[Any, "int64 of shape (rows, categories)"]


@dataclass(config=STORED, frozen=True)
class TableEncoding:
    """Converts rows to model inputs, and model outputs to values of the target."""

    target: str
    output: Annotated[Classes | Amount, Field(discriminator="kind")]
    numbers: list[NumberFeature]
    categories: list[CategoryFeature]
    kinds: dict[str, ColumnKind]
    """Kind of each column to predict from."""
    texts: CsvTexts | None = None
    """Parser of texts; None if the training files had typed columns."""

    @property
    def num_outputs(self) -> int:
        """Outputs of a model: one for each class, or a single number."""
        return len(self.output.values) if isinstance(self.output, Classes) else 1

    @property
    def input_names(self) -> list[str]:
        """Names of the columns of ``frame`` before they are made plain: numbers, then categories."""
        return [each.name for each in self.numbers] + [each.column for each in self.categories]

    @property
    def num_inputs(self) -> int:
        """Number of columns of ``matrix``, without categories."""
        return len(self.numbers) + sum(each.has_missing for each in self.numbers)

    @property
    def category_sizes(self) -> list[int]:
        """Number of indices of each category column, including the one for unknown values."""
        return [len(each.values) + 1 for each in self.categories]

    def encode(self, table: pa.Table) -> Features:
        """Encode rows, which may have extra columns and other types with the same meaning.

        Raises:
            ValueError: A column is missing, or has texts where it had numbers.
        """
        present = {*table.column_names}
        missing = [name for name in self.kinds if name not in present]
        if missing:
            raise ValueError(f"the rows have no column {', '.join(missing)}; the model was trained with it")
        columns = {name: table[name] for name in self.kinds}
        if self.texts is not None:
            columns = {name: self.texts.read(name, each, self.kinds[name]) for name, each in columns.items()}
        numbers = [_numbers(columns[each.column], self.kinds[each.column], each, self.texts) for each in self.numbers]
        indices = [_indices(columns[each.column], each, self.texts) for each in self.categories]
        rows = table.num_rows
        return Features(
            np.stack(numbers, axis=1) if numbers else np.empty((rows, 0)),
            np.stack(indices, axis=1) if indices else np.empty((rows, 0), dtype=np.int64),
        )

    def matrix(self, numbers: Floats, categories: Integers | None = None) -> npt.NDArray[np.float32]:
        """Return scaled numbers with missing values filled, and a 0/1 column for each number that may be missing.

        Args:
            numbers: Of shape (rows, numbers), with NaN.
            categories: If given, they are appended as a column of 0 and 1 for each category.

        Returns:
            Float32 of shape (rows, ``num_inputs``), or wider with categories.
        """
        mean, scale, fill = (
            np.array([getattr(each, name) for each in self.numbers]) for name in ("mean", "scale", "fill")
        )
        is_missing = np.isnan(numbers)
        filled = (np.where(is_missing, fill, numbers) - mean) / scale
        marked = is_missing[:, [each.has_missing for each in self.numbers]]
        hot = [] if categories is None else [
            categories[:, index, None] == np.arange(1, size) for index, size in enumerate(self.category_sizes)
        ]  # fmt: skip
        return np.concatenate([filled, marked, *hot], axis=1).astype(np.float32)

    def frame(self, features: Features) -> pd.DataFrame:
        """Return the inputs as a pandas frame, for libraries that handle missing values and categories: numbers with
        NaN, and columns of pandas' category type."""
        import pandas as pd

        columns: list[Any] = [features.numbers[:, index] for index in range(len(self.numbers))]
        for index, each in enumerate(self.categories):
            codes = features.categories[:, index] - 1
            columns.append(pd.Categorical.from_codes(codes, categories=each.values))
        return pd.DataFrame(dict(zip(plain_names(self.input_names), columns, strict=True)))

    def targets(self, table: pa.Table, where: str) -> npt.NDArray[Any]:
        """Return the values of the target, which each row has: int64 indices of classes, or float64 numbers. Messages
        name the rows by ``where``.

        Raises:
            ValueError: A class is unknown, or a value is not a number.
        """
        column = table[self.target]
        if isinstance(self.output, Amount):
            return _target_numbers(self.target, column)
        index = {key: number for number, value in enumerate(self.output.values) for key in _spellings(value)}
        values = class_values(self.target, column)
        if unknown := sorted({str(value) for value in values if value not in index}):
            raise ValueError(
                f"data.target={self.target}: the {where} rows have the class {unknown[0]!r}, which the training rows "
                f"do not have; they have {', '.join(map(str, self.output.values[:8]))}"
            )
        return np.array([index[value] for value in values], dtype=np.int64)

    def positive_index(self, value: bool | int | str | None) -> int | None:
        """Return the index of the class of interest, ``task.positive_class``; None if there is none.

        Raises:
            ValueError: The training rows have no such class, or the target is a number.
        """
        return None if value is None else self.class_index("task.positive_class", value)

    def class_index(self, key: str, value: bool | int | str) -> int:
        """Return the index of a class, which is compared as text; messages name the config ``key`` that has it.

        Raises:
            ValueError: The training rows have no such class, or the target is a number.
        """
        if not isinstance(self.output, Classes):
            raise ValueError(  # noqa: TRY004 - a mistake in the config
                f"{key}={value}: numbers are predicted, not classes; remove it"
            )
        texts = [str(each) for each in self.output.values]
        if str(value) not in texts:
            raise ValueError(
                f"{key}={value}: data.target={self.target} has no such class; use one of {', '.join(texts[:8])}"
            )
        return texts.index(str(value))

    def save(self, folder: Path) -> None:
        """Write the encoding into a checkpoint."""
        (folder / ENCODING_FILE).write_bytes(ENCODING.dump_json(self, indent=2))


ENCODING: TypeAdapter[TableEncoding] = TypeAdapter(TableEncoding)


def load_encoding(folder: Path) -> TableEncoding:
    """Read the encoding of a checkpoint."""
    return ENCODING.validate_json((folder / ENCODING_FILE).read_bytes())


def learn_encoding(config: TableData, goal: Goal, table: pa.Table) -> TableEncoding:
    """Learn the encoding of a table from its training rows, each of which has a target.

    Raises:
        ValueError: A column cannot be learned from; the message names it and the fix.
    """
    from pyarrow import types

    declared = pandas_categories(table)
    kinds: dict[str, ColumnKind] = {}
    numbers: list[NumberFeature] = []
    categories: list[CategoryFeature] = []
    for name in feature_names(config, table.column_names):
        column = table[name]
        kind = column_kind(config, name, column)
        if kind == "category" or (kind == "number" and name in declared):
            kinds[name] = "category"
            numeric = types.is_integer(column.type) or types.is_floating(column.type)
            categories.append(CategoryFeature(name, _frequent(column, config.max_categories), numeric))
        elif kind != "empty":
            parts = DATE_PARTS if kind == "date" else ("value",)
            learned = [_learn_number(config, name, part, kind, column) for part in parts]
            features = [each for each in learned if each is not None]
            if features:
                kinds[name] = kind
                numbers += features
    if not kinds:
        raise ValueError(f"data.path={config.path}: has no column with values to predict {config.target} from")
    output = _learn_output(config, goal, table)
    return TableEncoding(config.target, output, numbers, categories, kinds, CsvTexts.of(config))


def _learn_number(
    config: TableData, name: str, part: Any, kind: ColumnKind, column: pa.ChunkedArray
) -> NumberFeature | None:
    """Return what is learned of a column or a part of its dates; None if all values are infinite or missing."""
    from pyarrow import types

    unit = "us" if config.format == "parquet" and types.is_time(column.type) else None
    feature = NumberFeature(name, part, 0.0, 1.0, 0.0, has_missing=False, unit=unit)
    values = _numbers(column, kind, feature, CsvTexts.of(config))
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    fill = {"median": np.median(known), "mean": known.mean(), "zero": 0.0}[config.imputation]
    mean, scale = _mean_and_scale(known) if config.standardize else (0.0, 1.0)
    has_missing = part in ("value", "days") and len(known) < len(values)
    return NumberFeature(name, part, mean, scale, float(fill), has_missing, unit)


def _mean_and_scale(values: Floats) -> tuple[float, float]:
    """Return the mean and standard deviation of some numbers; if all are equal, 1 as standard deviation, since the
    computed one may be a rounding error."""
    if values.min() == values.max():
        return float(values[0]), 1.0
    return float(values.mean()), float(values.std()) or 1.0


def _learn_output(config: TableData, goal: Goal, table: pa.Table) -> Classes | Amount:
    column = table[config.target]
    if goal == "regression":
        values = _target_numbers(config.target, column)
        return Amount("amount", *_mean_and_scale(values))
    classes = sorted(set(class_values(config.target, column)))
    if len(classes) < 2:
        raise ValueError(
            f"data.target={config.target}: all training rows have the same class ({classes[0]}); there is nothing to "
            "learn"
        )
    if len(classes) > LARGEST_CLASSES:
        raise ValueError(
            f"data.target={config.target}: has {len(classes)} different values, too many for classes; predict it as a "
            "number (task=regression), or name another column"
        )
    return Classes("classes", classes)


def plain_names(names: Sequence[str]) -> list[str]:
    """Return distinct names of letters, digits and ``_``: XGBoost and LightGBM refuse brackets, commas and other
    characters.

    >>> plain_names(["a", "size [m]", "size <m>"])
    ['a', 'size__m_', 'size__m__']
    """
    plain: dict[str, None] = {}
    for name in names:
        candidate = re.sub(r"\W", "_", name)
        while candidate in plain:
            candidate += "_"
        plain[candidate] = None
    return [*plain]


# --- columns as arrays -----------------------------------------------------------------------------------------


def _numbers(column: pa.ChunkedArray, kind: ColumnKind, feature: NumberFeature, texts: CsvTexts | None) -> Floats:
    """Return the values of a feature; missing and infinite ones are NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = plain(column)
    try:
        if kind == "date":
            column = _date_part(_moments(column), feature.part)
        elif pa.types.is_time(column.type):
            if feature.unit is not None:
                column = pc.cast(column, pa.time64(feature.unit), safe=False)
            column = pc.cast(column, pa.int64() if pa.types.is_time64(column.type) else pa.int32())
        if pa.types.is_boolean(column.type):
            column = pc.cast(column, pa.uint8())
        values = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    except pa.ArrowException as error:
        wanted = "a date" if kind == "date" else "a number"
        raise ValueError(f"the column {feature.column!r} has a value that is not {wanted}: {error}") from error
    missing = texts.missing_numbers if texts is not None and kind == "number" else []
    return np.where(np.isfinite(values) & ~np.isin(values, missing), values, np.nan)


def _moments(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert dates, moments or texts of them to moments without a time zone; those with one are in UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return pc.cast(column, pa.timestamp("us"), safe=False)
    except pa.ArrowInvalid:
        with contextlib.suppress(pa.ArrowInvalid):  # texts with an offset from UTC, as JSON has them
            return pc.cast(pc.cast(column, pa.timestamp("us", "UTC"), safe=False), pa.timestamp("us"))
        raise


def _date_part(column: pa.ChunkedArray, part: str) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    if part == "days":
        microseconds = pc.cast(pc.cast(column, pa.int64()), pa.float64(), safe=False)  # in 9999, more than 53 bits
        return pc.divide(microseconds, 86_400e6)
    return {"month": pc.month, "weekday": pc.day_of_week, "hour": pc.hour}[part](column)


def _indices(column: pa.ChunkedArray, feature: CategoryFeature, texts: CsvTexts | None) -> Integers:
    import pyarrow as pa
    import pyarrow.compute as pc

    if texts is not None and feature.numeric and is_text(column.type):
        written = pc.fill_null(pc.cast(column, pa.string()), "").to_pylist()
        column = pa.chunked_array([pa.array([texts.as_code(each) for each in written], pa.string())])
    written = _texts(column)
    if texts is not None and not feature.numeric:
        known = {texts.as_moment_or_truth(each): each for each in feature.values}
        # Else the training column had other values than dates, moments, times of day or booleans, or two forms of one.
        if None not in known and len(known) == len(feature.values):
            same = {
                each: known.get(texts.as_moment_or_truth(each)) for each in written.unique().drop_null().to_pylist()
            }
            written = pa.chunked_array([pa.array([same.get(each) for each in written.to_pylist()], pa.string())])
    found = pc.index_in(written, value_set=pa.array(feature.values, pa.string()))
    indices: Integers = pc.fill_null(found, -1).to_numpy().astype(np.int64) + 1
    return indices


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert values to texts; whole numbers have no decimals, even from a column that became float because of missing
    values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = plain(column)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_finite(column), column, None)
        is_whole = pc.and_(pc.equal(column, pc.floor(column)), pc.less(pc.abs(column), 2.0**63))
        if pc.all(is_whole).as_py() is not False:
            column = pc.cast(column, pa.int64(), safe=False)
    return pc.cast(column, pa.string())


def _frequent(column: pa.ChunkedArray, most: int) -> list[str]:
    """Return the most frequent categories, in alphabetical order."""
    counts = _texts(column).drop_null().value_counts().to_pylist()
    counts.sort(key=lambda each: (-each["counts"], each["values"]))
    return sorted(each["values"] for each in counts[:most])


def _spellings(value: bool | int | str) -> list[bool | int | str]:
    """Return a class and its texts in a file whose column is of texts: ``1`` and ``1.0``, ``true`` and ``TRUE``."""
    if isinstance(value, str):
        return [value]
    text = str(value)
    return [value, text, text.lower(), text.upper(), f"{text}.0"]


def _target_numbers(name: str, column: pa.ChunkedArray) -> Floats:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise ValueError(
            f"data.target={name}: is of type {kind}, and a regression needs numbers; predict classes "
            "(task=classification), or name another column"
        )
    values: Floats = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    if not np.isfinite(values).all():
        raise ValueError(f"data.target={name}: has values that are not finite; remove these rows")
    return values


def class_values(name: str, column: pa.ChunkedArray) -> list[bool | int | str]:
    """Return the distinct classes of rows, as Python values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = plain(column)
    kind = column.type
    if pa.types.is_floating(kind):
        try:
            column = pc.cast(column, pa.int64())
        except pa.ArrowException as error:
            raise ValueError(
                f"data.target={name}: has numbers with decimals, or of more than 18 digits, and a classification needs "
                "classes; predict the numbers (task=regression search.metric=eval/rmse, or a regressor as the "
                "estimator), or name another column"
            ) from error
    elif not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        column = pc.cast(column, pa.string())
    values: list[bool | int | str] = column.to_pylist()
    return values
