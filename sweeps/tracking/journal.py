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
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sweeps.errors import StorageFull, is_full

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
    with path.open("rb") as lines:
        for line in lines:
            if line.startswith(_OF_ARTIFACTS):
                for entry in _entries(line):
                    match entry:
                        case Artifact(key, name):
                            waiting.add((key, name))
                        case Stored(key, name):
                            waiting.discard((key, name))
    return not waiting


class Journal:
    """One writer, which may be many threads, and one reader; see the module."""

    def __init__(self, folder: Path) -> None:
        """
        Args:
            folder: The sweep's; it is made if there is none.

        Raises:
            StorageFull: The disk is.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._path, self._position_path = folder / JOURNAL_FILE, folder / POSITION_FILE
        self._lock = threading.Lock()
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        self.end = os.fstat(self._file).st_size
        """Bytes in it, whole lines all of them."""
        self._on_disk = 0
        self._is_full = False
        if self.end and os.pread(self._file, 1, self.end - 1) != b"\n":
            self._write(b"\n")  # a driver that was killed has left half a line
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
        line = json.dumps({"kind": type(entry).__name__, **entry.__dict__}).encode() + b"\n"
        with self._lock:
            self._write(line)

    def read(self, start: int, most: int) -> tuple[list[Entry], int]:
        """The entries in the next ``most`` bytes from ``start``, at least one, and where the next ones begin."""
        with self._lock:
            end = self.end
        size = min(most, end - start)
        block = os.pread(self._file, size, start)
        while block and not block.endswith(b"\n"):
            if (cut := block.rfind(b"\n")) >= 0:
                block = block[: cut + 1]
            else:  # one line that is longer
                block += os.pread(self._file, most, start + len(block))
        return list(_entries(block)), start + len(block)

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
        unfinished = self._position_path.with_name(f"{POSITION_FILE}.unfinished")
        try:
            unfinished.write_text(str(position), encoding="ascii")
            unfinished.rename(self._position_path)
        except OSError:
            # On a full disk the old position stays, from which everything would be repeated without harm.
            unfinished.unlink(missing_ok=True)
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
        self._is_full |= is_full(error)
        return StorageFull(self._path.parent) if is_full(error) else OSError(*error.args)


def _position(folder: Path) -> int:
    """Bytes that MLflow has taken."""
    try:
        return int((folder / POSITION_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):  # none yet, or the machine died as it was written: all is repeated
        return 0


def _entries(block: bytes) -> Iterator[Entry]:
    for line in block.splitlines():
        try:
            values = json.loads(line)
        except ValueError:  # half a line
            continue
        kind = _KINDS[values.pop("kind")]
        yield kind(**values)
