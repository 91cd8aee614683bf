"""Everything that goes to MLflow, written down in the sweep's folder first: what MLflow has not taken when it, the
driver or the machine dies is delivered from here later.

One line an entry, appended and never changed. ``Outbox`` carries the lines to MLflow in their order and notes how far
it has come; after a crash it repeats what it was about, which MLflow takes as the same (a run is found by its tags, a
point with the same time, step and value is the same point). No line goes to MLflow before it is on the disk, so the
journal is never behind the record: who goes on with a sweep reads here which steps are recorded already.
"""

from __future__ import annotations

import json
import os
import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from operator import itemgetter
from pathlib import Path
from typing import Any

from sweeps.errors import StorageFull, is_disk_full
from sweeps.files import FILE_MODE, replacing
from sweeps.versions import check_not_newer, release

PARENT = ""
"""The key of the sweep's own run; those of its trials are their ids."""
JOURNAL_FILE = "tracking.jsonl"
POSITION_FILE = "tracking.position"
"""How many bytes of the journal MLflow has taken."""


@dataclass(frozen=True)
class NewRun:
    """A run to be created, with its parameters."""

    key: str
    """Names the run in the journal: a trial's id, empty for the sweep's own run."""
    experiment_id: str
    name: str
    tags: dict[str, str]
    params: dict[str, str]
    started_ms: int
    identity: dict[str, str]
    """Tags that no other run has: by them it is found if its creation succeeded but the answer was lost."""


@dataclass(frozen=True)
class Points:
    """Metrics at a step, none of which is recorded yet."""

    key: str
    step: int
    timestamp_ms: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class GoneBack:
    """The run goes on from an earlier step: what comes after that may be logged again."""

    key: str
    step: int


@dataclass(frozen=True)
class Tags:
    """Tags to be set; None deletes one."""

    key: str
    tags: dict[str, str | None]


@dataclass(frozen=True)
class Status:
    """MLflow's status of a run; with an end, it has ended."""

    key: str
    status: str
    ended_ms: int | None = None


@dataclass(frozen=True)
class Artifact:
    """Something to be written to a run's artifacts, in place of what was there under that name."""

    key: str
    name: str
    """Path among the artifacts: of a file with ``text``, else of the folder that becomes a copy of ``folder``."""
    text: str | None = None
    folder: str | None = None


@dataclass(frozen=True)
class Stored:
    """An artifact was written, or can never be: it need not be looked at again."""

    key: str
    name: str
    folder: str | None = None


@dataclass(frozen=True)
class Version:
    """The lines after it are of this version of the journal; those before the first are of version 1, from before
    versions were kept. It is not handed to who reads entries."""

    version: int
    written_by: str
    """The release of ray-sweeps that wrote it."""


Entry = NewRun | Points | GoneBack | Tags | Status | Artifact | Stored
_KINDS: dict[str, type[Entry]] = {
    kind.__name__: kind for kind in (NewRun, Points, GoneBack, Tags, Status, Artifact, Stored)
}

_OF_ARTIFACTS = tuple(json.dumps({"kind": kind.__name__})[:-1].encode() for kind in (Artifact, Stored))
"""How their lines begin."""


def is_delivered(folder: Path) -> bool:
    """Whether MLflow has taken all of the journal in a folder, artifacts too. Its driver must have ended."""
    path = folder / JOURNAL_FILE
    if not path.is_file():
        return True
    if _position(folder) < path.stat().st_size:
        return False
    waiting: set[tuple[str, str]] = set()
    versions, end = _versions(path), 0
    with path.open("rb") as lines:
        for line in lines:
            start, end = end, end + len(line)
            if line.startswith(_OF_ARTIFACTS):
                for entry in _entries(line, start, versions):
                    match entry:
                        case Artifact(key, name):
                            waiting.add((key, name))
                        case Stored(key, name):
                            waiting.discard((key, name))
    return not waiting


def _as_it_was(line: dict[str, Any]) -> dict[str, Any]:
    """Version 1 to 2: versions are said; entries are the same."""
    return line


STEPS: Sequence[Callable[[dict[str, Any]], dict[str, Any]]] = (_as_it_was,)
"""The first turns a line of version 1 into one of version 2, and so on, as it is read: the file is only appended to."""
JOURNAL_VERSION = len(STEPS) + 1
_Versions = list[tuple[int, int]]
_VERSION_LINE = re.compile(rb'^\{"kind": "Version".*\}\n', re.MULTILINE)


def check_journal(folder: Path) -> None:
    """
    Raises:
        NewerVersion: A later release wrote the journal in a sweep's folder.
    """
    _versions(folder / JOURNAL_FILE)


def _versions(path: Path) -> _Versions:
    """Where which version begins, in order; the first part has none to say so.

    Raises:
        NewerVersion: A later release wrote it.
    """
    found = [(0, 1)]
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            for match in _VERSION_LINE.finditer(content):
                said = json.loads(match[0])
                check_not_newer(str(path), said["version"], JOURNAL_VERSION, said["written_by"])
                found.append((match.end(), said["version"]))
    return found


class Journal:
    """One writer, which may be many threads, and one reader; see the module."""

    def __init__(self, folder: Path) -> None:
        """
        Args:
            folder: The sweep's; it is made if there is none.

        Raises:
            StorageFull: The disk is.
            NewerVersion: A later release wrote it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._path, self._position_path = folder / JOURNAL_FILE, folder / POSITION_FILE
        self._lock = threading.Lock()
        self._versions = _versions(self._path)
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, FILE_MODE)
        self.end = os.fstat(self._file).st_size
        """Bytes in it, whole lines all of them."""
        self._on_disk = 0
        self._is_full = False
        if self.end and os.pread(self._file, 1, self.end - 1) != b"\n":
            self._write(b"\n")  # a driver that was killed has left half a line
        if self._versions[-1][1] < JOURNAL_VERSION:
            self._write(_line(Version(JOURNAL_VERSION, release())))
            self._versions.append((self.end, JOURNAL_VERSION))
        self.position = min(_position(folder), self.end)
        """Bytes that MLflow has taken."""

    @staticmethod
    def is_in(folder: Path) -> bool:
        return (folder / JOURNAL_FILE).is_file()

    def append(self, entry: Entry) -> None:
        """
        Raises:
            StorageFull: The disk is, or was before; nothing was written.
        """
        with self._lock:
            self._write(_line(entry))

    def read(self, start: int, most: int) -> tuple[list[Entry], int]:
        """The entries of the next ``most`` bytes from ``start``, of at least one line, and where the next begin."""
        with self._lock:
            end = self.end
        size = min(most, end - start)
        block = os.pread(self._file, size, start)
        while block and not block.endswith(b"\n"):
            if (cut := block.rfind(b"\n")) >= 0:
                block = block[: cut + 1]
            else:  # one line that is longer
                block += os.pread(self._file, most, start + len(block))
        return list(_entries(block, start, self._versions)), start + len(block)

    def entries(self, start: int = 0) -> Iterator[Entry]:
        """All from ``start`` on."""
        while start < self.end:
            entries, start = self.read(start, 1 << 20)
            yield from entries

    def sync(self, end: int) -> None:
        """Returns when all up to ``end`` is on the disk.

        Raises:
            StorageFull: There is no room for it, as some file systems find only now.
        """
        if self._on_disk < end:
            written = self.end
            try:
                os.fsync(self._file)
            except OSError as error:
                raise self._trouble(error) from None
            self._on_disk = written

    def advance(self, position: int) -> None:
        """MLflow has taken all up to ``position``."""
        # On a full disk the old position stays, and what follows it is sent once more, without harm.
        with suppress(OSError), replacing(self._position_path) as unfinished:
            unfinished.write_text(str(position), encoding="ascii")
        self.position = position

    def close(self) -> None:
        with self._lock:
            file, self._file = self._file, -1  # whoever comes late must not write into a file of the same number
        os.close(file)

    def _write(self, line: bytes) -> None:
        if self._is_full:  # a shorter line might still fit, and would say what follows from one that did not
            raise StorageFull(self._path.parent)
        written = 0
        try:
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError as error:
            if written:
                os.ftruncate(self._file, self.end)
            raise self._trouble(error) from None
        self.end += len(line)

    def _trouble(self, error: OSError) -> Exception:
        self._is_full |= is_disk_full(error)
        return StorageFull(self._path.parent) if is_disk_full(error) else OSError(*error.args)


def _position(folder: Path) -> int:
    """Bytes that MLflow has taken."""
    try:
        return int((folder / POSITION_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):  # none yet, or the machine died as it was written: all is repeated
        return 0


def _entries(block: bytes, start: int, versions: _Versions) -> Iterator[Entry]:
    """Those of whole lines that begin at ``start`` in the file, as this release has them."""
    for text in block.splitlines(keepends=True):
        version = versions[bisect_right(versions, start, key=itemgetter(0)) - 1][1]
        start += len(text)
        try:
            line = json.loads(text)
        except ValueError:  # half a line
            continue
        if line["kind"] == Version.__name__:
            continue
        for step in STEPS[version - 1 :]:
            line = step(line)
        kind = _KINDS[line.pop("kind")]
        yield kind(**line)


def _line(entry: Entry | Version) -> bytes:
    return json.dumps({"kind": type(entry).__name__, **entry.__dict__}).encode() + b"\n"
