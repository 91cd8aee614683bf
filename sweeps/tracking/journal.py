"""Journal of a sweep's record: a file in the sweep's folder with everything that is written to MLflow. If MLflow, the
driver or the machine dies, the undelivered entries are delivered later.

Each entry is one line with a checksum, appended and never changed. ``Outbox`` delivers the lines in order and saves its
position. After a crash it repeats the last lines, which changes nothing in MLflow: a run is found by its tags, and a
point with the same time, step and value is the same point. No line is sent before it is on the disk, so the journal is
never behind MLflow: a resumed sweep reads here which steps are recorded.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from sweeps.errors import FULL, StorageFailed
from sweeps.files.checksums import end_last_line, mend, parsed, parsed_lines, with_checksum
from sweeps.files.found_lines import lines_with
from sweeps.files.versions import check_not_newer, release
from sweeps.files.whole_files import FILE_MODE, replacing

PARENT = ""
"""Key of the parent run in entries; the key of a trial's run is the trial's id."""
JOURNAL_FILE = "tracking.jsonl"
POSITION_FILE = "tracking.position"
"""File with the number of bytes of the journal that MLflow has received, and its checksum."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class NewRun:
    """Entry: a run to create, with its parameters."""

    key: str
    """Key of the run: a trial's id, or ``PARENT``."""
    experiment_id: str
    name: str
    tags: dict[str, str]
    params: dict[str, str]
    started_ms: int
    identity: dict[str, str]
    """Unique tags by which the run is found if MLflow created it and the answer was lost."""


@dataclass(frozen=True)
class Points:
    """Entry: metrics of a run at a step."""

    key: str
    step: int
    timestamp_ms: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class GoneBack:
    """Entry: return of a run to an earlier step, so that later steps may be logged again."""

    key: str
    step: int


@dataclass(frozen=True)
class Tags:
    """Entry: tags to set; None deletes a tag."""

    key: str
    tags: dict[str, str | None]


@dataclass(frozen=True)
class Status:
    """Entry: MLflow's status of a run, with the time of its end if it has ended."""

    key: str
    status: str
    ended_ms: int | None = None


@dataclass(frozen=True)
class Artifact:
    """Entry: an artifact to upload to a run; it replaces an earlier one of the same name."""

    key: str
    name: str
    """Path among the run's artifacts: of a file with the content ``text``, or of a copy of ``folder``."""
    text: str | None = None
    folder: str | None = None


@dataclass(frozen=True)
class Stored:
    """Entry: an artifact that was uploaded, or can never be."""

    key: str
    name: str
    folder: str | None = None


@dataclass(frozen=True)
class Version:
    """Line with the format version of the following lines. Lines before the first ``Version`` line are of version 1,
    which had no such lines. ``read`` and ``entries`` skip ``Version`` lines."""

    version: int
    written_by: str
    """The release of ray-sweeps that wrote the lines."""


Entry = NewRun | Points | GoneBack | Tags | Status | Artifact | Stored
_KINDS: dict[str, type[Entry]] = {kind.__name__: kind for kind in get_args(Entry)}
JOURNAL_VERSION = 3
"""Version of the lines that this release writes. It also reads those of versions 1 and 2, which lack only ``Version``
lines and checksums."""


def _beginnings(*kinds: type[Entry | Version]) -> tuple[bytes, ...]:
    """Return the first bytes of the journal's lines of some kinds."""
    return tuple(json.dumps({"kind": kind.__name__})[:-1].encode() for kind in kinds)


def is_delivered(folder: Path) -> bool:
    """Whether MLflow has received the whole journal in a folder, with all artifacts. The sweep's driver must have
    ended."""
    path = folder / JOURNAL_FILE
    if not path.is_file():
        return True
    if _position(folder) < path.stat().st_size:
        return False
    waiting: dict[tuple[str, str], str | None] = {}
    about_artifacts = _beginnings(Artifact, Stored)
    for entry in _entries_of_lines(folder, lambda line: line.startswith(about_artifacts)):
        match entry:
            case Artifact(key, name, folder=waits):
                waiting[key, name] = waits
            case Stored(key, name, stored) if waiting.get((key, name)) == stored:  # else an older version was stored
                waiting.pop((key, name), None)
    return not waiting


def entries_without_points(folder: Path) -> Iterator[Entry]:
    """Yield the entries of the journal in a folder, without the metrics, which are most of it; none without a journal.
    Changes nothing."""
    points = _beginnings(Points)
    return _entries_of_lines(folder, lambda line: not line.startswith(points))


def _entries_of_lines(folder: Path, is_wanted: Callable[[bytes], bool]) -> Iterator[Entry]:
    """Yield the entries of the wanted lines of the journal in a folder."""
    check_journal(folder)
    if Journal.is_in(folder):
        with (folder / JOURNAL_FILE).open("rb") as lines:
            for line in filter(is_wanted, lines):
                yield from _entries(line)


def check_journal(folder: Path) -> int:
    """Check that this release can read the journal in a sweep's folder; return the version of its newest lines.

    Raises:
        NewerVersion: A later release wrote it.
    """
    path, newest = folder / JOURNAL_FILE, 1
    (beginning,) = _beginnings(Version)
    for _, text in lines_with(path, beginning):
        if text.startswith(beginning):
            with suppress(ValueError):  # damaged, and named when the journal was opened
                line = parsed(text)
                check_not_newer(str(path), line["version"], JOURNAL_VERSION, line["written_by"])
                newest = line["version"]
    return newest


class Journal:
    """Open journal. Any number of threads of one process may append to it, and one thread may read it."""

    def __init__(self, folder: Path, copy: Callable[[], bool] | None = None) -> None:
        """
        Args:
            folder: The sweep's folder; created if missing.
            copy: Copies the folder to where a driver on another machine would read it, and returns whether that
                succeeded.

        Raises:
            StorageFailed: The journal cannot be written.
            NewerVersion: A later release wrote it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._path, self._position_path = folder / JOURNAL_FILE, folder / POSITION_FILE
        self._lock, self._copy = threading.Lock(), copy
        self.lost_lines: tuple[int, ...] = ()
        """Numbers of the lines that are unreadable because of damage."""
        self._mend()
        version = check_journal(folder)
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, FILE_MODE)
        self.end = os.fstat(self._file).st_size
        """Size of the complete lines in bytes."""
        is_new = self.end == 0
        self._on_disk = 0
        self._has_failed = False
        if version < JOURNAL_VERSION:
            self._write(_line(Version(JOURNAL_VERSION, release())))
        self.position = self.end if is_new else min(_position(folder), self.end)
        """Number of bytes that MLflow has received."""

    @staticmethod
    def is_in(folder: Path) -> bool:
        return (folder / JOURNAL_FILE).is_file()

    def append(self, *entries: Entry) -> None:
        """Write entries at the end, in one write, so that a killed driver hardly ever leaves only the first of them.

        Raises:
            StorageFailed: The journal cannot be written, or an earlier call could not write it; nothing was written.
        """
        with self._lock:
            self._write(b"".join(map(_line, entries)))

    def read(self, start: int, most: int) -> tuple[list[Entry], int]:
        """Return the entries in at most ``most`` bytes from a position on, but at least one line, and the position
        after them.

        Raises:
            StorageFailed: The journal cannot be read; from then on it is not written, either.
        """
        with self._lock:
            size = min(most, self.end - start)
        try:
            block = self._content(size, start) if size else b""
            while block and not block.endswith(b"\n"):
                if (cut := block.rfind(b"\n")) >= 0:
                    block = block[: cut + 1]
                else:  # one longer line
                    block += self._content(most, start + len(block))
        except OSError as error:
            raise self._converted(error) from None
        return list(_entries(block)), start + len(block)

    def entries(self, start: int = 0, end: int | None = None) -> Iterator[Entry]:
        """Yield the entries between two positions; by default all."""
        end = self.end if end is None else end
        while start < end:
            entries, start = self.read(start, min(1 << 20, end - start))
            yield from entries

    def sync(self, end: int) -> bool:
        """Wait until everything before a position is on the disk. Return whether it has also reached the place where a
        driver on another machine would read it.

        Raises:
            StorageFailed: The journal could not be written, which some file systems report only now.
        """
        if self._on_disk < end:
            written = self.end
            try:
                os.fsync(self._file)
            except OSError as error:
                raise self._converted(error) from None
            if self._copy is not None and not self._copy():
                return False
            self._on_disk = written
        return True

    def advance(self, position: int) -> None:
        """Save the position up to which MLflow has received the journal."""
        # On a full disk the old position stays, and what follows it is sent again, without harm.
        with suppress(OSError), replacing(self._position_path) as unfinished:
            unfinished.write_text(_with_checksum(position), encoding="ascii")
        self.position = position

    def end_writing(self) -> None:
        """Make every later ``append`` fail. The file stays open, since a thread may still be reading it."""
        with self._lock:
            self._has_failed = True

    def close(self) -> None:
        """Close the file; a later ``append`` fails."""
        with self._lock:
            file, self._file = self._file, -1  # a late writer must not write into another file of the same number
        os.close(file)

    def _content(self, size: int, start: int) -> bytes:
        """Return content of the file from a position before its end.

        Raises:
            OSError: The file cannot be read, or is shorter than what was written.
        """
        if not (content := os.pread(self._file, size, start)):
            raise OSError(errno.EIO, f"{os.strerror(errno.EIO)}: a part of what was written is gone", str(self._path))
        return content

    def _mend(self) -> None:
        if self._path.is_file():
            try:
                damage = mend(self._path)
                end_last_line(self._path)
            except OSError as error:
                raise self._converted(error) from None
            self.lost_lines = damage.lost
            if damage:
                logger.warning("%s: %s", self._path, damage)

    def _write(self, line: bytes) -> None:
        if self._has_failed:  # a shorter line might still fit, but would build on the missing one
            raise StorageFailed(self._path.parent)
        written = 0
        try:
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError as error:
            failed = self._converted(error)  # first, so that nothing is written after a part that cannot be cut off
            if written:
                with suppress(OSError):
                    os.ftruncate(self._file, self.end)
            raise failed from None
        self.end += len(line)

    def _converted(self, error: OSError) -> StorageFailed:
        self._has_failed = True
        return StorageFailed(self._path.parent, "" if error.errno in FULL else str(error))


def _position(folder: Path) -> int:
    """Return the number of bytes that MLflow has received."""
    try:
        text = (folder / POSITION_FILE).read_text(encoding="ascii")
        position = int(text.partition(" ")[0])
    except (OSError, ValueError):  # none yet, or damaged when the machine died: everything is delivered again
        return 0
    return position if text in (_with_checksum(position), str(position)) else 0


def _with_checksum(position: int) -> str:
    """Return the text of the position file; releases before 0.3 wrote only the position."""
    return f"{position} {zlib.crc32(b'%d' % position):08x}"


def _entries(block: bytes) -> Iterator[Entry]:
    """Yield the entries of complete lines."""
    texts = block.removesuffix(b"\n").split(b"\n")  # `splitlines` would also end a line at a damaged character
    for line in parsed_lines(texts):
        if line is None:  # half a line, or a damaged one, which was named when the journal was opened
            continue
        kind = _KINDS.get(line.pop("kind"))
        if kind is not None:  # else a `Version`
            yield kind(**line)


def _line(entry: Entry | Version) -> bytes:
    return with_checksum(json.dumps({"kind": type(entry).__name__, **entry.__dict__}).encode()) + b"\n"
