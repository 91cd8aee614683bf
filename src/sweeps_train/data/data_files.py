"""Files of documents on this machine and in object stores, and their division into pieces for reading."""

from __future__ import annotations

import codecs
import csv
import fnmatch
import glob
import io
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

Document = Mapping[str, Any]
"""Values by column name."""

FILE_TYPES = (".jsonl", ".json", ".parquet", ".csv", ".txt")

PIECE_BYTES = 16 * 2**20
"""Size of a piece of a file: some seconds of tokenizing."""

UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""First bytes of a text in UTF-16."""

_PLAIN = "/!$&'()*+,;=:@"
"""Characters that are not percent-encoded in the path of a URI, as in ``year=2026/a.csv``."""
_ROWS_AT_ONCE = 1000
_SEPARATORS = (",", ";", "\t", "|")
_TO_LINE_END = 2**16


@dataclass(frozen=True)
class File:
    """A file of documents."""

    location: str
    """Absolute path or URI."""
    size: int
    modified_ns: int | None
    """Nanoseconds since 1970; None if the store does not know it."""


@dataclass(frozen=True)
class Piece:
    """A part of a file that one process reads at a time."""

    location: str
    start: int = 0
    stop: int | None = None
    """End of the range that begins at ``start``: in bytes for JSONL and text by lines (a line belongs to the piece in
    which it begins), in row groups for Parquet. None reads the whole file."""

    def __str__(self) -> str:
        return self.location if self.stop is None else f"{self.location} [{self.start}:{self.stop}]"


def find_files(key: str, path: str, types: tuple[str, ...] = FILE_TYPES) -> list[File] | None:
    """Find the files of a path, URI, folder or glob whose names have one of these endings. Files whose name or folder
    begins with a dot are left out, unless the path itself names them.

    Returns:
        Files sorted by name; None if the path can only be a name on the hub.

    Raises:
        ValueError: There are none.

    Example:
        >>> find_files("data.path", "wikitext") is None
        True
    """
    if "://" in path:
        return _remote_files(key, path, types)
    found = local_files(key, path, types)
    return None if found is None else [file_at(file) for file in found]


def file_at(path: Path) -> File:
    """Describe a file of this machine."""
    stat = path.stat()
    # Not the target of a link, whose name may have no type, as in the hub's cache.
    return File(str(path.absolute()), stat.st_size, stat.st_mtime_ns)


def local_files(key: str, path: str, types: tuple[str, ...] = FILE_TYPES) -> list[Path] | None:
    """Find files of this machine, as ``find_files`` does."""
    local = Path(path).expanduser()
    try:
        if local.is_file():
            if not _has_type(local.name, types):
                raise ValueError(f"{key}={path}: the name must end in the type of the file: {', '.join(types)}")
            return [local]
        if local.is_dir():
            found = sorted(file for file in _files_below(local) if _has_type(file.name, types))
        elif glob.has_magic(path):
            names = glob.glob(str(local), recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
            found = sorted(file for file in map(Path, names) if _has_type(file.name, types) and file.is_file())
        elif _has_type(local.name, types) or path.startswith((".", "/", "~", "builtin:")):
            found = []
        else:
            return None
    except OSError as error:
        raise ValueError(f"{key}={path} cannot be read: {error}") from error
    if not found:
        raise ValueError(_nothing_there(key, path, types))
    return found


def _files_below(folder: Path, top: Path | None = None, read: set[Path] | None = None) -> Iterator[Path]:
    """Yield the files below a folder, without hidden ones. A folder that is a link is read if it leads elsewhere; one
    below ``top``, the first folder, is read by its own name, and each other one once."""
    top, read = folder.resolve() if top is None else top, set() if read is None else read
    try:
        entries = sorted(folder.iterdir())
    except PermissionError:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_file():
            yield entry
        elif entry.is_dir():
            target = entry.resolve()
            is_inside = target.is_relative_to(top) or top.is_relative_to(target)
            if target not in read and not (entry.is_symlink() and is_inside):
                read.add(target)
                yield from _files_below(entry, top, read)


def _remote_files(key: str, uri: str, types: tuple[str, ...]) -> list[File]:
    from pyarrow.fs import FileSelector, FileType, PyFileSystem

    address, _, options = uri.partition("?")  # the query has options of the store; this ? is not a glob pattern
    base = address
    while "*" in base or "[" in base:
        base = base.rpartition("/")[0]

    def below(file: str) -> str:
        return file.removeprefix(path).strip("/")

    try:
        system, path = open_store(f"{base}?{options}" if options else base)
        if (info := system.get_file_info(path)).type == FileType.File:
            found = [info]
        else:
            found = [each for each in system.get_file_info(FileSelector(path, recursive=True)) if each.is_file]
            pattern = address.removeprefix(base).strip("/").split("/") if base != address else ["**"]
            found = [each for each in found if _fits(below(each.path).split("/"), pattern)]
    except (OSError, ValueError, ImportError) as error:
        raise ValueError(f"{key}={uri} cannot be read: {error}") from error
    # Not from the store's own path, which may lack the account or host. Arrow's own stores decode %20, others do not.
    decodes = not isinstance(system, PyFileSystem)
    names = (quote(below(each.path), safe=_PLAIN) if decodes else below(each.path) for each in found)
    locations = (f"{base.rstrip('/')}/{name}".rstrip("/") for name in names)
    files = [
        File(location + (f"?{options}" if options else ""), each.size, each.mtime_ns)
        for location, each in zip(locations, found, strict=True)
        if _has_type(location, types)
    ]
    if not files:
        raise ValueError(_nothing_there(key, uri, types))
    return sorted(files, key=lambda file: file.location)


def _fits(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the names of a path match those of a glob, by the rules for local files: ``*`` matches one name and
    ``**`` any number of folders, but neither matches hidden ones.

    >>> _fits(["a", "b.csv"], ["*.csv"]), _fits(["a", "b.csv"], ["**", "*.csv"]), _fits([".a", "b.csv"], ["**"])
    (False, True, False)
    """
    if not pattern:
        return not names
    first, *rest = pattern
    if first == "**" and _fits(names, rest):
        return True
    if not names or not fnmatch.fnmatchcase(names[0], first):
        return False
    if names[0].startswith(".") and not first.startswith("."):
        return False
    return _fits(names[1:], pattern if first == "**" else rest)


def _nothing_there(key: str, path: str, types: tuple[str, ...]) -> str:
    hub = ", or a name on the Hugging Face hub" if types == FILE_TYPES else ""
    files = f"a {', '.join(types)} file, a folder or glob of them{hub}"
    return f"{key}={path}: there are no such files; give {files}"


def open_store(location: str) -> tuple[Any, str]:
    """Return the Arrow file system of a path or URI, and the path in it.

    Raises:
        OSError: The store cannot be reached.
        ValueError: There is no such kind of store; ``ImportError`` if its package is not installed.
    """
    import pyarrow
    from pyarrow.fs import FileSystem, FSSpecHandler, LocalFileSystem, PyFileSystem

    if "://" not in location:
        return LocalFileSystem(), location
    address, separator, options = location.partition("?")
    try:  # a URI has no spaces and no letters beyond ASCII, but paths do
        system, path = FileSystem.from_uri(quote(address, safe=f"{_PLAIN}%[]") + separator + options)
    except pyarrow.ArrowInvalid:  # a store that Arrow does not support
        import fsspec

        store, path = fsspec.core.url_to_fs(location)
        return PyFileSystem(FSSpecHandler(store)), path
    return system, path


def open_file(location: str) -> Any:
    """Open a file at an absolute path or URI, on this machine or in an object store, for reading as an Arrow file."""
    system, path = open_store(location)
    return system.open_input_file(path)


def _has_type(name: str, types: tuple[str, ...]) -> bool:
    return name.lower().endswith(types)


def _suffix(location: str) -> str:
    return Path(without_options(location)).suffix.lower()


def without_options(location: str) -> str:
    """Return an absolute path, or a URI without the options of its store.

    >>> without_options("/data/a?b/c.csv"), without_options("s3://bucket/c.csv?region=eu-west-1")
    ('/data/a?b/c.csv', 's3://bucket/c.csv')
    """
    return location.partition("?")[0] if "://" in location else location


# --- pieces --------------------------------------------------------------------------------------------------


def pieces_of(file: File, *, lines: bool = False) -> list[Piece]:
    """Divide a file into pieces of about ``PIECE_BYTES``, if its format can be read from the middle. With ``lines``,
    each line of a text file is a document.

    Example:
        >>> len(pieces_of(File("/data/text.jsonl", size=3 * PIECE_BYTES, modified_ns=None)))
        3
    """
    suffix = _suffix(file.location)
    if suffix == ".parquet":
        return _row_groups(file)
    if (suffix == ".jsonl" or (suffix == ".txt" and lines)) and file.size > PIECE_BYTES:
        starts = range(0, file.size, PIECE_BYTES)
        return [Piece(file.location, start, min(start + PIECE_BYTES, file.size)) for start in starts]
    return [Piece(file.location)]


def _row_groups(file: File) -> list[Piece]:
    import pyarrow.parquet

    try:
        with open_file(file.location) as opened:
            metadata = pyarrow.parquet.ParquetFile(opened).metadata
            sizes = [metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups)]
    except (OSError, pyarrow.ArrowException) as error:
        raise ValueError(f"{file.location} cannot be read: {error}") from error
    pieces, start, held = [], 0, 0
    for index, size in enumerate(sizes):
        held += size
        if held >= PIECE_BYTES or index == len(sizes) - 1:
            pieces.append(Piece(file.location, start, index + 1))
            start, held = index + 1, 0
    return pieces


def read_piece(piece: Piece, *, lines: bool = False) -> Iterator[Document]:
    """Yield the documents of a piece, in order. With ``lines``, each line of a text file is a document.

    Raises:
        ValueError: The file's content does not match its type.
    """
    suffix = _suffix(piece.location)
    try:
        with open_file(piece.location) as opened:
            if suffix == ".parquet":
                yield from _rows(opened, piece)
            elif suffix == ".csv":
                yield from _table(opened)
            elif suffix == ".jsonl":
                yield from _objects(piece, _lines(opened, piece))
            elif suffix == ".json":
                yield from _json(piece, opened.read().decode("utf-8-sig"))
            elif lines:
                yield from ({"text": line.rstrip("\r")} for line in _lines(opened, piece) if line.strip())
            else:
                yield {"text": opened.read().decode("utf-8-sig")}
    except UnicodeDecodeError as error:
        raise ValueError(f"{piece} is not UTF-8 ({error}); convert it, as in {_converted(piece, error)}") from error
    except (OSError, csv.Error) as error:
        raise ValueError(f"{piece} cannot be read: {error}") from error


def _converted(piece: Piece, error: UnicodeDecodeError) -> str:
    """Return a shell command that converts a file in UTF-16 or latin-1 to UTF-8."""
    name = Path(without_options(piece.location)).name
    encoding = "UTF-16" if error.object.startswith(UTF_16_MARKS) else "ISO-8859-1"
    return f"iconv -f {encoding} -t UTF-8 {shlex.quote(name)} -o {shlex.quote(f'utf8-{name}')}"


def _table(opened: Any) -> Iterator[Document]:
    """Yield the rows of a CSV file, whose first line names the columns."""
    csv.field_size_limit(2**31 - 1)  # the default of 128 KiB is too small for documents
    # utf-8-sig: spreadsheets write a byte order mark.
    # strict: otherwise a quote that is not closed would make one cell of all that follows.
    rows = csv.DictReader(io.TextIOWrapper(opened, encoding="utf-8-sig", newline=""), strict=True)
    names = rows.fieldnames or ()
    if twice := [name for name in names if name and names.count(name) > 1]:
        raise csv.Error(f"it has two columns {twice[0]!r}; rename one")
    header = ",".join(names)
    if (found := other_separator(header, ",")) is not None:
        raise csv.Error(
            f"its first line is {header!r}, whose cells are separated by {found!r}; write it with commas, as pandas' "
            "to_csv does, or as JSONL or Parquet"
        )
    while (row := _next_row(rows)) is not None:
        if None in row:
            raise csv.Error(
                f"line {rows.line_num} has more cells than the header has columns; quote cells that contain commas"
            )
        yield row


def other_separator(header: str, separator: str) -> str | None:
    """Return the character that separates the column names, if it is not the expected one.

    >>> other_separator("name;age, years;city", ",")
    ';'
    >>> other_separator("name,age", ",") is None
    True
    """
    likely = max(_SEPARATORS, key=header.count)
    return likely if header.count(likely) > header.count(separator) else None


def _next_row(rows: csv.DictReader[str]) -> Document | None:
    try:
        return next(rows, None)
    except csv.Error as error:
        raise csv.Error(
            f"the row after line {rows.line_num}: {error}; a quoted cell ends with a quote before the comma "
            "or the end of the line, and a quote within it is written twice"
        ) from error


def _rows(opened: Any, piece: Piece) -> Iterator[Document]:
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(opened)
    stop = file.num_row_groups if piece.stop is None else piece.stop
    for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, row_groups=list(range(piece.start, stop))):
        yield from batch.to_pylist()


def _lines(opened: Any, piece: Piece) -> Iterator[str]:
    """Yield the lines that begin within a piece."""
    size = opened.size()
    start, stop = piece.start, size if piece.stop is None else min(piece.stop, size)
    content = opened.read_at(stop - start, start)
    if start > 0 and opened.read_at(1, start - 1) != b"\n":
        first = content.find(b"\n")
        if first < 0:
            return
        content = content[first + 1 :]
    parts, length = [content], _TO_LINE_END
    while parts[-1] and not parts[-1].endswith(b"\n") and stop < size:
        more = opened.read_at(min(length, size - stop), stop)
        stop, length = stop + len(more), 2 * length
        parts.append(more[: more.find(b"\n") + 1] or more)
    content = b"".join(parts)
    if start == 0:
        content = content.removeprefix(codecs.BOM_UTF8)
    for line in content.split(b"\n"):  # not splitlines, which also splits at characters that JSON allows in strings
        yield line.decode()


def _json(piece: Piece, text: str) -> Iterator[Document]:
    """Yield the objects of JSON text: a list of objects, one object, or one per line."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        if text.lstrip().startswith("["):
            raise ValueError(f"{piece} is not JSON: {error}") from error
        yield from _objects(piece, iter(text.split("\n")))
        return
    for document in found if isinstance(found, list) else [found]:
        yield _checked(piece, document)


def _objects(piece: Piece, lines: Iterator[str]) -> Iterator[Document]:
    for number, line in enumerate(filter(str.strip, lines), start=1):
        try:
            document = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{piece} is not JSON, document {number}: {error}") from error
        yield _checked(piece, document)


def _checked(piece: Piece, document: Any) -> Document:
    if not isinstance(document, dict):
        raise ValueError(  # noqa: TRY004 - a mistake in the data
            f"{piece} must contain JSON objects, one per line, each with the columns of a document"
        )
    return document
