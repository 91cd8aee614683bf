"""Tables from CSV and Parquet files, on this machine or in an object store."""

from __future__ import annotations

import io
import json
from collections import Counter, deque
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from sweeps_train.config.table import TableData
from sweeps_train.data.data_files import (
    UTF_16_MARKS,
    File,
    find_files,
    open_file,
    other_separator,
    without_options,
)
from sweeps_train.tables.columns import is_text
from sweeps_train.tables.csv_texts import CsvTexts

if TYPE_CHECKING:
    import pyarrow as pa

TYPES = {"csv": (".csv", ".tsv", ".csv.gz", ".tsv.gz"), "parquet": (".parquet", ".pq")}
"""File name endings by ``data.format``."""
LEAST_CSV_BYTES = 2**20
MOST_COMPRESSED = 20
"""Assumed maximum compression ratio of a CSV file."""
MOST_CSV_BYTES = 2**31 - 1
"""Maximum bytes of a CSV file from which the types of its columns are inferred; Arrow reads no larger blocks."""


def table_files(config: TableData, key: str, path: str) -> list[File]:
    """Find the files of a table at a path: a file, a folder, a glob or a URI. Messages name its config ``key``.

    Raises:
        ValueError: No files match.
    """
    files = find_files(key, path, TYPES[config.format])
    if files is None:
        raise ValueError(
            f"{key}={path}: there are no such files; give a {', '.join(TYPES[config.format])} file or a folder or glob "
            "of them"
        )
    if not (filled := [file for file in files if file.size > 0]):
        raise ValueError(f"{key}={path}: is empty; give files with rows")
    return filled


def read_table(
    config: TableData, key: str = "data.path", path: str | None = None, texts: Collection[str] = ()
) -> pa.Table:
    """Read a table, with all of its columns, except those without a name, such as the index that pandas writes.
    Messages name the ``key`` of the path, which is by default the config's own. The columns ``texts`` of a CSV file are
    read as texts, even if all of their cells look like numbers or truth values.

    Raises:
        ValueError: There are no files, one cannot be read, or two do not fit together.
    """
    import pyarrow as pa

    path = config.path if path is None else path
    if path.startswith("builtin:"):
        return _builtin(path.removeprefix("builtin:"))
    files = table_files(config, key, path)
    tables = [_read(config, file.location, texts) for file in files]
    _check_target(config, key, path, files, tables)
    if config.format == "csv":  # types are inferred by file: 012 is a number in one without other texts
        texts = {*texts, *(name for table in tables for name in text_columns(table))}
        texts |= {name for table in tables for name in _long_codes(config, table)}
        tables = [
            table if texts & {*table.column_names} <= {*text_columns(table)} else _read(config, file.location, texts)
            for file, table in zip(files, tables, strict=True)
        ]
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise ValueError(f"{key}={path}: its files do not have the same columns: {error}") from error
    if table.num_rows == 0:
        raise ValueError(f"{key}={path}: has no rows; give files with rows")
    return table


def _long_codes(config: TableData, table: pa.Table) -> list[str]:
    """Return the columns of categories and groups with numbers of more than 64 bits. They are read as floats, in which
    different whole numbers become the same one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def is_long(column: pa.ChunkedArray) -> bool:
        numbers = pc.and_(pc.greater_equal(pc.abs(column), 2.0**63), pc.is_finite(column))
        return bool(pc.any(numbers).as_py())

    codes = [name for name in table.column_names if name in (*config.categories, config.group)]
    return [name for name in codes if pa.types.is_floating(table[name].type) and is_long(table[name])]


def _check_target(config: TableData, key: str, path: str, files: list[File], tables: list[pa.Table]) -> None:
    """Raise ``ValueError`` if a file lacks the target that others have: all of its rows would be left out."""
    has_target = [config.target in table.column_names for table in tables]
    if any(has_target) and not all(has_target):
        lacking = files[has_target.index(False)].location
        raise ValueError(
            f"{key}={path}: {lacking} has no column {config.target!r}, which other files have; name its columns as "
            "theirs, in its first line if it is a CSV file"
        )


def text_columns(table: pa.Table) -> list[str]:
    """Return the names of the columns of texts."""
    return [field.name for field in table.schema if is_text(field.type)]


def read_columns(config: TableData, key: str, path: str) -> list[str]:
    """Return the column names of a table's first file, without reading its rows.

    Raises:
        ValueError: There are no files, or the first one cannot be read.
    """
    location = table_files(config, key, path)[0].location
    if config.format == "csv":
        names: list[str] = _read(config, location, first_block=True).column_names
        return names
    import pyarrow as pa
    import pyarrow.parquet

    try:
        with open_file(location) as opened:
            return _named(pyarrow.parquet.read_schema(opened).names)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"{location} cannot be read: {error}") from error


def _read(config: TableData, location: str, texts: Collection[str] = (), *, first_block: bool = False) -> pa.Table:
    import pyarrow as pa

    is_csv = config.format == "csv"
    try:
        with open_file(location) as opened:
            table = _csv(config, location, opened, texts, first_block) if is_csv else _parquet(opened)
        names = table.column_names  # they are decoded here, which may fail
    except (OSError, UnicodeError, pa.ArrowException) as error:
        reason = _explained(config, location) if is_csv else None
        raise ValueError(reason or f"{location} cannot be read: {error}") from error
    is_doubtful = len(names) == 1 or any(pa.types.is_binary(each) for each in table.schema.types)
    if is_csv and is_doubtful and (reason := _explained(config, location)) is not None:
        raise ValueError(reason)
    if is_csv and not first_block:
        _check_last_quote(config, location, table)
    names = _named(names)
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise ValueError(f"{location} has two columns {twice[0]!r}; rename one")
    return table.select(names)


def _check_last_quote(config: TableData, location: str, table: pa.Table) -> None:
    """Raise ``ValueError`` if the last cell has line breaks because a quote is not closed: it holds all rows that
    follow."""
    last = table.column(-1)[-1].as_py() if table.num_rows else None
    if not isinstance(last, str) or "\n" not in last:
        return
    with open_file(location) as opened:
        text = io.TextIOWrapper(_uncompressed(location, opened), encoding=config.encoding)
        end = deque((line for line in text if line.strip()), maxlen=1)[0]
    if not end.rstrip("\r\n").endswith('"'):
        raise ValueError(
            f"{location}: the quote before {last.splitlines()[0]!r} is not closed, so that all rows that follow are "
            "one cell; close it, or write a quote within a cell twice, in quotes"
        )


def _explained(config: TableData, location: str) -> str | None:
    """Explain an error in reading a CSV file by the key that fixes it: its encoding or its separator."""
    separator = _separator(config, location)
    with open_file(location) as opened:
        text = io.TextIOWrapper(_uncompressed(location, opened), encoding=config.encoding)
        try:
            header = text.readline().rstrip("\r\n")
            for _ in text:  # a later line may not be of this encoding
                pass
        except OSError:
            return None  # such as a compressed file that is cut off
        except UnicodeError as error:
            is_utf_16 = isinstance(error, UnicodeDecodeError) and error.object.startswith(UTF_16_MARKS)
            likely = "utf-16" if is_utf_16 else "latin-1"
            return (
                f"data.encoding={config.encoding}: {location} is not {config.encoding} ({error}); name its own, such "
                f"as data.encoding={likely}"
            )
    found = other_separator(header, separator)
    return found and (
        f"data.separator={separator!r}: in {location} the first line is {header!r}, whose cells are separated by "
        f"{found!r}; set 'data.separator={json.dumps(found)}'"
    )


def _named(names: list[str]) -> list[str]:
    return [name for name in names if name not in ("", "__index_level_0__")]


def _parquet(opened: Any) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet

    table = pyarrow.parquet.ParquetFile(opened).read()
    # Arrow computes little with these types.
    usual = {pa.string_view(): pa.string(), pa.float16(): pa.float32()}
    fields = [each.with_type(usual.get(each.type, each.type)) for each in table.schema]
    return table.cast(pa.schema(fields, table.schema.metadata))


def _csv(config: TableData, location: str, opened: Any, texts: Collection[str], first_block: bool) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    # Arrow infers a column's type from the first block: a number with decimals far below would be an error.
    size = opened.size() * (MOST_COMPRESSED if _is_compressed(location) else 1)
    block = LEAST_CSV_BYTES if first_block else min(max(size, LEAST_CSV_BYTES), MOST_CSV_BYTES)
    source = _uncompressed(location, opened)
    conversion = CsvTexts(config.missing, config.decimal).options()
    conversion.column_types = dict.fromkeys(texts, pa.string())
    options = {
        "read_options": csv.ReadOptions(block_size=block, encoding=config.encoding),
        "parse_options": csv.ParseOptions(delimiter=_separator(config, location), newlines_in_values=not first_block),
        "convert_options": conversion,
    }
    if first_block:
        with csv.open_csv(source, **options) as reader:
            return pa.Table.from_batches([], schema=reader.schema)
    return csv.read_csv(source, **options)


def _name(location: str) -> str:
    return without_options(location).lower()


def _is_compressed(location: str) -> bool:
    return _name(location).endswith(".gz")


def _uncompressed(location: str, opened: Any) -> Any:
    import pyarrow as pa

    return pa.CompressedInputStream(opened, "gzip") if _is_compressed(location) else opened


def _separator(config: TableData, location: str) -> str:
    is_tab = _name(location).removesuffix(".gz").endswith(".tsv")
    return config.separator or ("\t" if is_tab else ",")


def _builtin(name: str) -> pa.Table:
    """Return one of scikit-learn's tables, with classes as texts."""
    import pyarrow as pa
    from sklearn import datasets

    loaded = getattr(datasets, f"load_{name}")(as_frame=True)
    frame = loaded.frame
    if "target_names" in loaded:
        frame = frame.assign(target=[str(loaded.target_names[each]) for each in loaded.target])
    return pa.Table.from_pandas(frame, preserve_index=False)
