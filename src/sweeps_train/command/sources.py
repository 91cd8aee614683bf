"""Metrics in files that a program writes while it runs: CSV, JSON lines, TensorBoard's events, MLflow's store."""

from __future__ import annotations

import contextlib
import csv
import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path

from sweeps_train.command.checkpoints import paths_in
from sweeps_train.command.output import Record, json_record, numbers_in, printed_number
from sweeps_train.command.placeholders import Lookup, Template
from sweeps_train.config.command import CsvFile, JsonLinesFile, MetricSource, MlflowRun, TensorBoardEvents
from sweeps_train.files.text_lines import text_lines

STEP = "step"
"""Name of the step in records of sources that always have one."""
MLFLOW_FOLDER = "mlruns"
"""Folder of the program's own MLflow store, in the trial's folder."""
PARENT_TAG = "tags/mlflow.parentRunId"
"""File of a nested run with the id of the run above it."""
OF_ANOTHER_STORE = ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME")
"""Environment variables that name a run or an experiment, which the trial's own store does not have."""
EVENT_FILES = "**/*tfevents*"
COMPARED_BYTES = 256
"""Number of bytes before the unread ones that are compared, to detect that a file was rewritten."""


class Source(ABC):
    """A source of metrics that is read repeatedly; contents from before the program's start do not count."""

    @abstractmethod
    def read(self, *, at_end: bool = False) -> list[Record]:
        """Return the records that are new since the last call. If the program has ended, the last line counts even
        without a line break."""


def file_sources(
    sources: Sequence[MetricSource],
    folder: Path,
    works_in: Path,
    lookup: Lookup,
    needed: Collection[str] = (),
    *,
    is_resumed: bool = True,
) -> list[Source]:
    """Return the sources that are files, whose paths are relative to the program's working folder. A training that is
    not resumed may write the same rows as an earlier attempt. ``needed`` are the program's names of the metrics that
    the search reads."""
    found: list[Source] = []
    for source in sources:
        if isinstance(source, CsvFile):
            found.append(
                CsvTail(works_in / Template(source.path).text(lookup), source.delimiter, is_resumed=is_resumed)
            )
        elif isinstance(source, JsonLinesFile):
            found.append(JsonLinesTail(works_in / Template(source.path).text(lookup), is_resumed=is_resumed))
        elif isinstance(source, TensorBoardEvents):
            found.append(EventFiles(works_in / Template(source.path).text(lookup), needed))
        elif isinstance(source, MlflowRun):
            found.append(MlflowStore(folder / MLFLOW_FOLDER))
    return found


def with_own_store(environment: Mapping[str, str], sources: Sequence[MetricSource], folder: Path) -> dict[str, str]:
    """Return a program's environment, in which MLflow logs to a store of the trial if metrics are read from it."""
    if not any(isinstance(source, MlflowRun) for source in sources):
        return dict(environment)
    kept = {name: value for name, value in environment.items() if name not in OF_ANOTHER_STORE}
    return kept | store_environment(folder / MLFLOW_FOLDER)


def store_environment(folder: Path) -> dict[str, str]:
    """Return the environment in which MLflow keeps runs as files in a folder."""
    # MLflow 3.7 and later ask for the permission, since they store no more than runs in files.
    return {"MLFLOW_TRACKING_URI": folder.absolute().as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}


class _Growing:
    """Reads the new bytes of a growing file; all of them if it was rewritten."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._before = b""
        """The last bytes that were read, before the offset."""
        self.starts = True
        """Whether the bytes that ``new`` has returned are the file's first ones."""

    def skip(self) -> None:
        """Skip the existing content."""
        try:
            with self.path.open("rb") as file:
                self._offset = file.seek(0, os.SEEK_END)
                file.seek(max(0, self._offset - COMPARED_BYTES))
                self._before = file.read(self._offset - file.tell())
        except OSError:
            self._offset = 0

    def new(self) -> bytes:
        """Return the bytes that were added since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset - len(self._before))
                if file.read(len(self._before)) != self._before:
                    self._offset, self._before = 0, b""
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return b""
        self.starts = self._offset == 0
        self._offset += len(data)
        self._before = (self._before + data)[-COMPARED_BYTES:]
        return data

    def put_back(self, data: bytes) -> None:
        """Put the last bytes back, so that ``new`` returns them again together with later ones."""
        self._offset -= len(data)
        self._before = self._before[: max(0, len(self._before) - len(data))]


class _Lines(Source):
    """Source that reads the lines of a growing file.

    Some programs rewrite the file for each new row, or for each new metric as Lightning's ``CSVLogger`` does: rows that
    were read before are recognised by their numbers.
    """

    def __init__(self, path: Path, *, is_resumed: bool = True) -> None:
        self._file = _Growing(path)
        self._taken: list[int] = []
        """Hash of each row that was read."""
        self._row = 0
        """Number of the next row."""
        self.read(at_end=True)
        if not is_resumed:
            self._taken, self._row = [], 0

    def read(self, *, at_end: bool = False) -> list[Record]:
        data = self._file.new()
        if not at_end:
            complete, newline, rest = data.rpartition(b"\n")
            self._file.put_back(rest)
            data = complete + newline
        starts = self._file.starts and bool(data)
        if starts:
            self._row = 0
        lines = text_lines(data.decode("utf-8-sig" if starts else "utf-8", errors="replace"))
        return [record for record in self._records(lines, starts=starts) if record and self._is_new(record)]

    def _is_new(self, row: Record) -> bool:
        key, number = hash(repr(sorted(row.items()))), self._row
        self._row += 1
        if number < len(self._taken) and self._taken[number] == key:
            return False
        self._taken[number:] = [key]
        return True

    @abstractmethod
    def _records(self, lines: list[str], *, starts: bool) -> Iterable[Record]:
        """Return the metrics in complete lines; ``starts`` tells whether they are the file's first ones."""


class JsonLinesTail(_Lines):
    """Source that reads a growing file of JSON lines."""

    def _records(self, lines: list[str], *, starts: bool) -> Iterable[Record]:
        return [json_record(line) for line in lines]


class CsvTail(_Lines):
    """Source that reads a growing CSV file, whose first line after any empty lines and comments names the columns."""

    def __init__(self, path: Path, delimiter: str = ",", *, is_resumed: bool = True) -> None:
        self._delimiter = delimiter
        self._names: list[str] = []
        super().__init__(path, is_resumed=is_resumed)

    def _records(self, lines: list[str], *, starts: bool) -> Iterable[Record]:
        if starts:
            self._names = []
        csv.field_size_limit(2**31 - 1)  # the default of 128 KiB is too small for texts that a program generates
        for row in ([cell.strip() for cell in cells] for cells in csv.reader(lines, delimiter=self._delimiter)):
            if self._names and not self._is_comment_before(row):
                yield numbers_in(dict(zip(self._names, row, strict=False)))
            elif any(row):
                self._names = row

    def _is_comment_before(self, row: list[str]) -> bool:
        """Whether the line taken for the column names was a comment. Column names may begin with ``#`` as well, but
        then numbers follow."""
        return self._names[0].startswith("#") and any(row) and all(printed_number(cell) is None for cell in row)


class EventFiles(Source):
    """Scalars in TensorBoard's event files, in a folder at any depth."""

    def __init__(self, path: Path, needed: Collection[str] = ()) -> None:
        self._path, self._needed = path, needed
        self._files: dict[Path, _Growing] = {}
        self._folders: dict[str, Path] = {}
        """First folder whose event files have a tag."""
        for file in self._found():
            file.skip()

    def read(self, *, at_end: bool = False) -> list[Record]:
        """Return the new records.

        Raises:
            ValueError: The program writes a needed tag into several folders.
        """
        return _by_step(value for file in self._found() for value in self._scalars(file))

    def _found(self) -> list[_Growing]:
        paths = [self._path] if self._path.is_file() else paths_in(self._path, EVENT_FILES)
        return [self._files.setdefault(path, _Growing(path)) for path in paths]

    def _scalars(self, file: _Growing) -> Iterator[tuple[int, str, float]]:
        from tensorboardX.proto.event_pb2 import Event

        data, start = file.new(), 0
        while (length := _record_length(data, start)) is not None:
            event = Event.FromString(data[start + 12 : start + 12 + length])
            start += 16 + length
            for value in event.summary.value:
                if (number := _scalar(value)) is not None and self._counts(value.tag, file.path.parent):
                    yield event.step, value.tag, number
        file.put_back(data[start:])

    def _counts(self, tag: str, folder: Path) -> bool:
        """Whether this folder provides the values of a tag. Only the first one does, although Keras, for training and
        validation, and torch's ``add_scalars`` write a tag into several."""
        first = self._folders.setdefault(tag, folder)
        if first != folder and tag in self._needed:
            raise ValueError(
                f"task.read: the program writes the TensorBoard tag {tag!r} into {first} and into {folder}, and one "
                "metric would have the values of both; give the path of one of the two folders"
            )
        return first == folder


class MlflowStore(Source):
    """Metrics in the files of an MLflow store: ``EXPERIMENT/RUN/metrics/NAME``, with a line for each value. Those of a
    nested run that a run above it has, too, are left out: they are parts of one value, such as the folds of a mean."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, _Growing] = {}
        for files in self._found().values():
            for file in files.values():
                file.skip()

    def read(self, *, at_end: bool = False) -> list[Record]:
        found, values = self._found(), []
        names = {run.name: files.keys() for run, files in found.items()}
        for run, files in found.items():
            left_out = {name for above in _runs_above(run) for name in names.get(above, ())}
            values += [value for name, file in files.items() if name not in left_out for value in _logged(name, file)]
        return _by_step(value for _, value in sorted(values, key=itemgetter(0)))  # several runs may have a step

    def _found(self) -> dict[Path, dict[str, _Growing]]:
        """Return the files of each run's metrics, by the folders of the runs and the names of the metrics."""
        return {
            folder.parent: {
                path.relative_to(folder).as_posix(): self._files.setdefault(path, _Growing(path))
                for path in paths_in(folder, "**/*")
                if path.is_file()
            }
            for folder in paths_in(self._folder, "*/*/metrics")
        }


def _runs_above(run: Path) -> list[str]:
    """Return the ids of the runs in which an MLflow run is nested, the nearest one first."""
    found = [run.name]
    with contextlib.suppress(OSError):  # it is not nested
        while (above := (run.parent / found[-1] / PARENT_TAG).read_text(encoding="utf-8")) not in found:
            found.append(above)
    return found[1:]


def _logged(name: str, file: _Growing) -> Iterator[tuple[int, tuple[int, str, float]]]:
    """Yield the new values in MLflow's file of a metric, with the times at which they were logged."""
    complete, newline, rest = file.new().rpartition(b"\n")
    file.put_back(rest)
    for line in text_lines((complete + newline).decode("utf-8", errors="replace")):
        parts = line.split()  # time in milliseconds, value, step
        if len(parts) >= 2:
            yield int(float(parts[0])), (int(parts[2]) if len(parts) > 2 else 0, name, float(parts[1]))


def _by_step(values: Iterable[tuple[int, str, float]]) -> list[Record]:
    """Return a record for each step, in their order."""
    found: dict[int, Record] = {}
    for step, name, value in values:
        found.setdefault(step, {STEP: float(step)})[name] = value
    return [found[step] for step in sorted(found)]


def _record_length(data: bytes, start: int) -> int | None:
    """Return the length in bytes of the record at a position in an event file; None if the record is incomplete. Before
    the record come its length (8 bytes) and a checksum (4), after it a checksum (4)."""
    if len(data) < start + 12:
        return None
    length: int = struct.unpack_from("<Q", data, start)[0]
    return length if len(data) >= start + length + 16 else None


def _scalar(value: object) -> float | None:
    """Return the number in a summary's value, in torch's form (a simple value) or TensorFlow's (a tensor)."""
    if value.HasField("simple_value"):  # type: ignore[attr-defined]  # a protocol buffer
        return float(value.simple_value)  # type: ignore[attr-defined]
    if value.HasField("tensor"):  # type: ignore[attr-defined]
        tensor = value.tensor  # type: ignore[attr-defined]
        if tensor.tensor_content and len(tensor.tensor_content) == 4 and tensor.dtype == 1:
            return float(struct.unpack("<f", tensor.tensor_content)[0])
        numbers = [*tensor.float_val, *tensor.double_val, *tensor.int_val]
        return float(numbers[0]) if len(numbers) == 1 else None
    return None
