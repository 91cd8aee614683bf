"""Raw rows as a table, and predictions as a frame."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sweeps_train.tables.encoding import Classes, TableEncoding

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

PREDICTION = "prediction"
PROBABILITY = "probability_"


def to_table(rows: Any) -> pa.Table:
    """Convert raw rows: a pandas frame, an Arrow table, or a list of dictionaries. A column of numbers and texts, as
    pandas makes it of a long file of which it takes each part by itself, becomes texts.

    Raises:
        ValueError: The rows are none of these.
    """
    import pandas as pd
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, dict):
        rows = [rows]
    try:
        frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(rows)
        try:
            return pa.Table.from_pandas(frame, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return pa.Table.from_pandas(frame.apply(_of_one_type), preserve_index=False)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise ValueError(f"the rows cannot be read as a table: {error}") from error


def _of_one_type(column: pd.Series[Any]) -> pd.Series[Any]:
    """Write the values of a column as texts if they are of several types or have more than 64 bits; whole numbers
    without decimals."""
    import pyarrow as pa

    def written(value: Any) -> str:
        return str(int(value) if isinstance(value, float) and value.is_integer() else value)

    try:
        pa.Array.from_pandas(column)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return column.map(written, na_action="ignore")
    return column


def example_row(encoding: TableEncoding) -> dict[str, Any]:
    """Return a plausible row of the file, with the typical value of each column."""
    usual = {each.column: each.fill for each in reversed(encoding.numbers)}  # for a date, its days
    categories = {each.column: each.values[0] for each in encoding.categories if each.values}
    row: dict[str, Any] = {}
    for name, kind in encoding.kinds.items():
        if kind == "date":
            row[name] = (date(1970, 1, 1) + timedelta(days=int(usual[name]))).isoformat()
        elif kind == "boolean":
            row[name] = usual[name] >= 0.5
        else:
            row[name] = categories.get(name) if kind == "category" else usual[name]
    return row


def prediction_frame(encoding: TableEncoding, outputs: npt.NDArray[Any]) -> pd.DataFrame:
    """Return predictions as a frame, with a column for each class's probability if the outputs have them: probabilities
    of shape (rows, classes), indices of classes, or numbers of shape (rows,)."""
    import pandas as pd

    if not isinstance(encoding.output, Classes):
        return pd.DataFrame({PREDICTION: outputs})
    classes = encoding.output.values
    if outputs.ndim == 1:
        return pd.DataFrame({PREDICTION: [classes[index] for index in outputs]})
    columns: dict[str, Any] = {PREDICTION: [classes[index] for index in np.argmax(outputs, axis=1)]}
    for index, each in enumerate(classes):
        columns[f"{PROBABILITY}{each}"] = outputs[:, index]
    return pd.DataFrame(columns)
