"""Schema of tables: rows with a target column, in CSV or Parquet files."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config.fields import STRICT, Character, PositiveInt, Seed
from sweeps_train.config.loader import Loader
from sweeps_train.config.reach import Flag, Reach, Text

PositiveClass = Annotated[bool | int | str | None, Reach.NOTHING]
"""Value of the target column that is the class of interest."""
BUILTIN_TABLES = ("breast_cancer", "diabetes", "wine")
"""Tables that ship with scikit-learn, as ``builtin:NAME``; their target column is ``target``."""


@dataclass(config=STRICT, kw_only=True)
class TableData:
    """A table in memory: numbers, categories, booleans and dates, with missing values. Everything that is learned about
    its columns (categories, means, scales) is learned from the training rows, and saved with the model."""

    kind: Literal["table"]
    format: Literal["csv", "parquet"]
    """Type of the files: CSV whose first line names the columns (also ``.tsv``, ``.csv.gz``), or Parquet."""
    path: Annotated[str, Reach.SOURCE]
    """A file, a folder or glob of files, a URI of an object store, or ``builtin:breast_cancer``, ``builtin:diabetes``,
    ``builtin:wine`` (scikit-learn's)."""
    target: Text
    """Column to predict. Rows without a value in it are left out."""
    features: list[Text] | None = None
    """Columns to predict from; default: all but the target, ``drop``, ``group`` and ``time``."""
    drop: list[Text] = Field(default_factory=list)
    """Columns that are left out, such as identifiers."""
    categories: list[Text] = Field(default_factory=list)
    """Columns of numbers that are categories, such as codes; columns of text always are."""
    missing: list[Text] = Field(
        default_factory=lambda: ["NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "#N/A", "\\N"]
    )
    """Texts in a CSV file that stand for a missing value, as an empty cell always does. ``\\N`` is the null of MySQL,
    Hive and Postgres."""
    separator: Annotated[Character | None, Reach.NOTHING] = None
    """Character between the cells of a CSV file, ``\\t`` for a tab; default: a comma, and a tab in ``.tsv`` files."""
    encoding: Text = "utf-8"
    """Encoding of a CSV file, such as ``latin-1``, ``cp1252`` or ``utf-16``."""
    decimal: Literal[".", ","] = "."
    """Character before the decimals of a number in a CSV file."""
    eval_path: Annotated[str | None, Reach.SOURCE] = None
    """Held-out rows in their own file; without it, a part of the rows is held out."""
    eval_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Part of the rows that is held out without ``eval_path``; for classification, the same part of each class."""
    train_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Part of the training rows that is used, about the same of each class, for cheaper stages of a search. A smaller
    part is contained in each larger one, and the held-out rows stay the same."""
    split_seed: Seed = 0
    """Seed of the choice of held-out rows, which is the same for all trials of a sweep."""
    group: Text | None = None
    """Column whose values are never split: all rows of a patient, a customer or a day are either for training or held
    out."""
    time: Text | None = None
    """Column of dates or numbers; the rows with the latest values are held out."""
    max_categories: PositiveInt = 255
    """Maximum number of categories of a column: the most frequent values; all others count as unknown. scikit-learn's
    ``HistGradientBoosting`` takes no more than 255."""
    imputation: Literal["median", "mean", "zero"] = "median"
    """Value that replaces a missing number for models that need one; an additional input marks that it was missing."""
    standardize: Flag = True
    """Scale numbers to mean 0 and standard deviation 1, for models that get them as a matrix."""
    loader: Loader = Field(default_factory=Loader)
    """Options of the data loader."""

    def __post_init__(self) -> None:
        try:
            "".encode(self.encoding)  # the codecs module also knows some that do not encode text
        except LookupError:
            raise ValueError(
                f"encoding={self.encoding}: Python has no such encoding; use utf-8, latin-1, cp1252 or utf-16"
            ) from None
        if self.group is not None and self.time is not None:
            raise ValueError(f"group={self.group} and time={self.time} exclude each other; remove one")
        if self.eval_path is not None and (by := self.group or self.time) is not None:
            raise ValueError(f"eval_path={self.eval_path} already holds out rows; remove group and time ({by})")
        if self.target in {*(self.features or ()), *self.drop, *self.categories}:
            raise ValueError(f"target={self.target}: is also among features, drop or categories; remove it there")
        if self.features == []:
            raise ValueError("features=[]: there is nothing to predict from; name columns, or remove it")
        both = sorted({*(self.features or ())} & {*self.drop})
        if both:
            raise ValueError(f"drop={both}: also named in features; remove them from one of the two")
        if self.path.startswith("builtin:") and self.path.removeprefix("builtin:") not in BUILTIN_TABLES:
            names = ", ".join(f"builtin:{name}" for name in BUILTIN_TABLES)
            raise ValueError(f"path={self.path}: there is no such table; use a file, or {names}")
