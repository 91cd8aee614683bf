"""Parsing of texts with the missing values and number format of a model's training CSV, so that raw rows are read in
the same way as that file."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, time
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from sweeps_train.config.table import TableData
from sweeps_train.tables.columns import ColumnKind, is_number, is_text

if TYPE_CHECKING:
    import pyarrow as pa


_TIME_OF_DAY = re.compile(r"\d\d:\d\d(:\d\d(\.\d+)?)?")


@dataclass(config=ConfigDict(extra="forbid"), frozen=True)
class CsvTexts:
    """Parser of texts with the number format and missing values of a CSV file."""

    missing: list[str]
    """Texts that stand for a missing value, as an empty text always does."""
    decimal: str
    """Character before the decimals of a number."""

    @classmethod
    def of(cls, config: TableData) -> CsvTexts | None:
        """Return the parser for a table's texts; None if its files have typed columns."""
        return cls(config.missing, config.decimal) if config.format == "csv" else None

    def options(self) -> Any:
        """Return Arrow's options for reading the CSV file."""
        from pyarrow import csv

        return csv.ConvertOptions(
            null_values=["", *self.missing],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
            decimal_point=self.decimal,
        )

    def read(self, name: str, column: pa.ChunkedArray, kind: ColumnKind) -> pa.ChunkedArray:
        """Parse a column of texts as in the CSV file, and convert times of day to seconds; columns of categories or
        other types stay unchanged.

        Raises:
            ValueError: The column contains a text that is not a number.
        """
        import pyarrow as pa
        from pyarrow import csv

        if kind == "number" and pa.types.is_time(column.type):
            return column.cast(pa.time32("s"), safe=False)
        if kind == "category" or not is_text(column.type):
            return column
        written = pa.BufferOutputStream()
        csv.write_csv(pa.table({name: column.cast(pa.string())}), written)
        read = csv.read_csv(
            pa.BufferReader(written.getvalue()),
            parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=self.options(),
        )[name]
        if kind == "date" or not is_text(read.type):
            return read
        texts = read.unique().drop_null().to_pylist()
        wrong = next((each for each in texts if not is_number(each, self.decimal)), texts[0])
        raise ValueError(
            f"the column {name!r} has a value that is not a number: {wrong!r}; texts are read as in the file of the "
            f"training, with data.decimal={self.decimal} and data.missing={self.missing}"
        )

    def as_number(self, text: str) -> float:
        """Parse a text as a number; NaN if it is not one."""
        return float(text.replace(self.decimal, ".")) if is_number(text, self.decimal) else float("nan")

    def as_code(self, text: str) -> str | None:
        """Return a text as a category of a column of numbers; None if the text is not a number.

        >>> CsvTexts([], ".").as_code("012"), CsvTexts([], ",").as_code("12,0"), CsvTexts([], ".").as_code("?")
        ('12', '12', None)
        >>> CsvTexts([], ".").as_code("18_24") is None
        True
        >>> CsvTexts([], ".").as_code("1e-05"), CsvTexts([], ".").as_code("1" + 20 * "0")
        ('0.00001', '1e+20')
        """
        import pyarrow as pa

        if not is_number(text, self.decimal):
            return None
        number = self.as_number(text)
        if not math.isfinite(number):
            return None
        if not number.is_integer() or abs(number) >= 2**63:  # as Arrow writes the numbers of the file
            return str(pa.scalar(number).cast(pa.string()).as_py())
        try:
            return str(int(text))  # not by way of a float, which has 53 bits
        except ValueError:
            return str(int(number))

    @staticmethod
    def as_moment_or_truth(text: str) -> str | None:
        """Return the canonical form of a date, a date with time, a time of day, or a boolean; None for other text.

        >>> CsvTexts.as_moment_or_truth("2024-01-05T08:00"), CsvTexts.as_moment_or_truth("2024-01-05 08:00:00")
        ('2024-01-05T08:00:00', '2024-01-05T08:00:00')
        >>> CsvTexts.as_moment_or_truth("TRUE"), CsvTexts.as_moment_or_truth("Rome")
        ('true', None)
        >>> CsvTexts.as_moment_or_truth("08:30"), CsvTexts.as_moment_or_truth("08:30:00.000000")
        ('08:30:00', '08:30:00')
        """
        if text.lower() in ("true", "false"):
            return text.lower()
        try:
            if _TIME_OF_DAY.fullmatch(text):
                return time.fromisoformat(text).isoformat()
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
        return (moment if moment.tzinfo is None else moment.astimezone(UTC)).isoformat()

    @property
    def missing_numbers(self) -> list[float]:
        """Numbers that stand for a missing value, such as -999."""
        return [self.as_number(each) for each in self.missing]
