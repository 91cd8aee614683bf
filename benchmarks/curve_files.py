"""Files of learning curves for benchmarks: Parquet, with the searched space in the metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sweeps.config.space import Distribution
from sweeps.simulate.recorded_rows import CONFIG_ID, ELAPSED, STEP
from sweeps.space.space import Space

TUNING = {"digits", "characters"}
"""Tables that our search was designed with, beside the Hartmann functions; results on the others are reported."""
SPACE_KEY = b"sweeps.space"


def write_curves(path: Path, rows: list[dict[str, Any]], space: dict[str, dict[str, Any]]) -> None:
    """Write a table of curves, with a row for each configuration and step. The space has distributions by path, as in a
    config."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(rows)
    table = table.replace_schema_metadata({SPACE_KEY: json.dumps(space).encode()})
    pq.write_table(table, path, compression="zstd")


def read_space(path: Path) -> Space:
    """The space of a table: that of its metadata, or derived from its columns.

    A column that is the same in all rows of each configuration is a parameter: texts are choices, numbers a range (on a
    logarithmic scale if they are positive and span a factor of 100).

    Raises:
        SystemExit: The file has no column that names configurations.
    """
    import pyarrow.parquet as pq
    from pydantic import TypeAdapter

    stored = (pq.read_schema(path).metadata or {}).get(SPACE_KEY)
    described = json.loads(stored) if stored else _derived(path)
    return Space(TypeAdapter(dict[str, Distribution]).validate_python(described))


def _derived(path: Path) -> dict[str, dict[str, Any]]:
    import pandas as pd

    frame = pd.read_parquet(path)
    if CONFIG_ID not in frame:
        raise SystemExit(f"{path}: has no column {CONFIG_ID}")
    found: dict[str, dict[str, Any]] = {}
    several = frame.groupby(CONFIG_ID)
    for name in frame.columns.difference([CONFIG_ID, STEP, ELAPSED], sort=False):
        if several[name].nunique(dropna=False).max() > 1:
            continue  # a metric
        values = frame[name].dropna()
        if values.dtype.kind not in "fiu":
            found[name] = {"type": "categorical", "choices": sorted(values.unique().tolist())}
            continue
        low, high = values.min().item(), values.max().item()
        kind = "float" if values.dtype.kind == "f" else "int"
        found[name] = {"type": kind, "low": low, "high": high, "log": bool(low > 0 and high > 100 * low)}
    return found
