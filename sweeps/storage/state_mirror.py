"""Mirror of a driver's own files (the study, the record's journal, the config) in an object store.

The driver works in a folder of its machine, and a thread copies the changes every few seconds. A copy is a set of parts
and a manifest that names them and is written last. Readers use the newest manifest, so they see all files as they were
at one moment. Files that only grow are copied in parts, which are merged so that their number grows with the logarithm
of the size.

Each driver writes manifests of its own session. A later session supersedes all earlier ones, including that of a driver
that has lost the sweep without noticing.

All functions raise ``OSError`` if the store does not answer, or refuses.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sweeps.files.checksums import mend
from sweeps.files.whole_files import FOLDER_MODE, UNFINISHED, replacing
from sweeps.storage.object_store import ObjectStore

COPY_EVERY_S = 3.0
"""Seconds between two copies of changed files; if the machine is lost, the changes of about this time are lost."""
STATE = "state"
"""Subfolder of the sweep's folder with manifests and parts."""
SESSION_FILE = ".session"
"""File in the driver's folder that names the session to which its files belong."""
NOT_COPIED = re.compile(rf"\..*|.*\.lock|driver\.json|.*{re.escape(UNFINISHED)}|.*\.replaced")
_MANIFEST = re.compile(r"state/(\d{6}-[0-9a-f]{8})/(\d{9})\.json")
READ_AGAIN = 20
_TAIL = 256
"""Number of bytes before an addition that are compared to verify that the file has only grown."""

T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass
class _Copied:
    """State of one file's copy in the store."""

    inode: int
    modified_ns: int
    size: int = 0
    checksum: int = 0
    tail: bytes = b""
    parts: list[tuple[str, int]] = field(default_factory=list)
    """Names and sizes of the parts, in order."""


class StateMirror:
    """Mirrors the top-level files of a sweep's folder into an object store, from ``start`` to ``close``."""

    def __init__(self, store: ObjectStore, folder: Path) -> None:
        self._store, self._folder = store, folder
        self._session = ""
        self._files: dict[str, _Copied] = {}
        self._stored: set[str] = set()
        """Names of the objects that the store may have, also from copies that failed."""
        self._sequence = self._parts = 0
        self._is_committed = False
        """Whether the last copy succeeded; the parts of a failed copy are in no manifest yet."""
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._follow, name="state-mirror", daemon=True)
        self._warned = False

    def start(self) -> None:
        """Begin a session, after downloading the store's files unless the local ones are newer."""
        refresh(self._store, self._folder)
        newest = _newest(self._store)
        number = 1 + (int(newest.session.partition("-")[0]) if newest is not None else 0)
        self._session = f"{number:06}-{uuid.uuid4().hex[:8]}"
        _correct_flipped_bits(self._folder)
        self.copy()
        _write_session(self._folder, self._session)
        self._remove_other_sessions()
        self._thread.start()

    def close(self) -> None:
        """Copy the remaining changes. If the store does not answer, the next session copies them: the local files are
        complete."""
        self._closed.set()
        self._thread.join()
        self.copy()

    def copy(self) -> None:
        """Copy the changes, and return when they are committed.

        Raises:
            OSError: Also if a file cannot be read.
        """
        with self._lock:
            seen = _snapshot(self._folder)
            changed = not self._is_committed or self._files.keys() != seen.keys()
            self._is_committed = False
            for name, status in seen.items():
                changed |= self._copy_file(name, status)
            for name in self._files.keys() - seen.keys():
                del self._files[name]
            if changed:
                self._commit()
            self._is_committed = True

    def _copy_file(self, name: str, status: os.stat_result) -> bool:
        """Upload the part of a file that the store lacks; return whether there was one."""
        known = self._files.get(name)
        if known is not None and (known.inode, known.modified_ns, known.size) == _identity(status):
            return False
        with (self._folder / name).open("rb") as file:
            # A file may have been replaced after its size was read: this copy then has the new content, which is also
            # complete, and the next copy corrects the size.
            status = os.fstat(file.fileno()) if os.fstat(file.fileno()).st_ino != status.st_ino else status
            copied = known if known is not None and _has_grown(known, status, file) else _Copied(*_identity(status)[:2])
            file.seek(copied.size)
            content = file.read(status.st_size - copied.size)
            copied.checksum = zlib.crc32(content, copied.checksum)
            copied.tail = (copied.tail + content)[-_TAIL:]
            copied.size += len(content)
            copied.inode, copied.modified_ns, _ = _identity(status)
            start = copied.size - len(content)
            parts = list(copied.parts)
            while parts and parts[-1][1] <= copied.size - start:  # as in a binary counter
                start -= parts.pop()[1]
            file.seek(start)
            part = f"{STATE}/{self._session}/part-{self._parts:06}"
            self._parts += 1
            self._stored.add(part)
            self._files.pop(name, None)  # if the upload fails, the file is copied as a whole next time
            self._store.write(part, file.read(copied.size - start))
        copied.parts = [*parts, (part, copied.size - start)]
        self._files[name] = copied
        return True

    def _commit(self) -> None:
        self._sequence += 1
        files = {
            name: {"size": each.size, "checksum": each.checksum, "parts": [part for part, _ in each.parts]}
            for name, each in self._files.items()
        }
        content = json.dumps({"session": self._session, "files": files}).encode()
        manifest = f"{STATE}/{self._session}/{self._sequence:09}.json"
        self._stored.add(manifest)
        self._store.write(manifest, _signed(content))
        needed = {manifest, *(part for each in self._files.values() for part, _ in each.parts)}
        for name in self._stored - needed:
            self._store.remove(name)
        self._stored = needed

    def _remove_other_sessions(self) -> None:
        for session in (self._store / STATE).folders():
            if session < self._session:
                (self._store / STATE / session).remove_all()

    def try_to_copy(self) -> bool:
        """Copy the changes; return whether they are committed. The first failure is logged."""
        try:
            self.copy()
            self._warned = False
        except OSError as error:
            if not self._warned:
                logger.warning("the sweep's state is not copied to %s: %s; it is tried again", self._store, error)
            self._warned = True
        return not self._warned

    def _follow(self) -> None:
        while not self._closed.wait(COPY_EVERY_S):
            self.try_to_copy()


@dataclass(frozen=True)
class _Manifest:
    version: str
    """Name of the manifest, unique within the sweep."""
    session: str
    files: dict[str, dict[str, Any]]


def has_state(store: ObjectStore) -> bool:
    """Whether a sweep's folder in a store has a complete copy of its driver's files."""
    return _newest(store) is not None


def newer_files(store: ObjectStore, names: Sequence[str], than: str) -> tuple[str, dict[str, bytes]]:
    """Return the newest committed version of some of a sweep's files, empty if the sweep has none, and the contents of
    those that exist, by name; no contents if that version is the known one.

    Raises:
        DamagedCopy: The store answers, but a file is damaged.
    """

    def read(newest: _Manifest | None) -> tuple[str, dict[str, bytes]]:
        if newest is None or newest.version == than:
            return than, {}
        return newest.version, {name: _content(store, newest, name) for name in names if name in newest.files}

    return _reading(store, read)


def refresh(store: ObjectStore, folder: Path) -> None:
    """Download the newest committed files of a sweep into a folder, unless the folder has those of the same or a later
    session.

    No driver may use the folder.
    """

    def bring(newest: _Manifest | None) -> None:
        if newest is not None and newest.session != _session_of(folder):
            _download(store, newest, folder)

    _reading(store, bring)


class DamagedCopy(OSError):
    """Raised when the store answers, but its copy of a sweep's file is damaged or incomplete."""


class _Superseded(DamagedCopy):
    """Raised when a part is missing because the driver committed a newer manifest during the read."""


def _reading(store: ObjectStore, read: Callable[[_Manifest | None], T]) -> T:
    """Read the files that the newest manifest names, again if a newer manifest replaces it in the meantime.

    Raises:
        DamagedCopy: A part is lost.
    """
    for _ in range(READ_AGAIN):
        with contextlib.suppress(_Superseded):
            return read(_newest(store))
    return read(_newest(store))


def _newest(store: ObjectStore) -> _Manifest | None:
    """Return the newest manifest whose content is intact."""
    for _ in range(3):  # the driver may replace it meanwhile
        names = sorted((name for name in store.names(STATE) if _MANIFEST.fullmatch(name)), reverse=True)
        for name in names:
            content = store.read(name)
            if content is not None and (document := _verified(content)) is not None:
                return _Manifest(name, document["session"], document["files"])
        if not names:
            return None
        time.sleep(0.2)
    return None


def _download(store: ObjectStore, manifest: _Manifest, folder: Path) -> None:
    """Download the files of a manifest, replacing the top-level files of a folder."""
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    (folder / SESSION_FILE).unlink(missing_ok=True)  # files of two sessions may be mixed until all are here
    for name in _snapshot(folder).keys() - manifest.files.keys():
        (folder / name).unlink()
    for name in manifest.files:
        content = _content(store, manifest, name)
        with replacing(folder / name) as unfinished:
            unfinished.write_bytes(content)
    _write_session(folder, manifest.session)


def _content(store: ObjectStore, manifest: _Manifest, name: str) -> bytes:
    file = manifest.files[name]
    content = b"".join(_part(store, part) for part in file["parts"])
    if (len(content), zlib.crc32(content)) != (file["size"], file["checksum"]):
        raise DamagedCopy(f"{store}: its copy of {name} is damaged")
    return content


def _part(store: ObjectStore, name: str) -> bytes:
    content = store.read(name)
    if content is None:
        raise _Superseded(f"{store}: {name} is missing")
    return content


def _correct_flipped_bits(folder: Path) -> None:
    """Correct flipped bits in JSON lines before files are copied in parts: a later correction in place would change a
    part that is already copied."""
    for name in _snapshot(folder):
        if name.endswith((".jsonl", ".log")) and (damage := mend(folder / name)).corrected:
            logger.warning("%s: %s", folder / name, damage)


def _snapshot(folder: Path) -> dict[str, os.stat_result]:
    """List the files until nothing changes between two listings; return the last one."""
    before = _look(folder)
    for _ in range(100):
        now = _look(folder)
        if now.keys() == before.keys() and all(_identity(now[name]) == _identity(before[name]) for name in now):
            break
        before = now
    return before


def _look(folder: Path) -> dict[str, os.stat_result]:
    found: dict[str, os.stat_result] = {}
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):  # it is being replaced
            if entry.is_file(follow_symlinks=False) and NOT_COPIED.fullmatch(entry.name) is None:
                found[entry.name] = Path(entry.path).stat()
    return found


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_mtime_ns, status.st_size


def _has_grown(known: _Copied, status: os.stat_result, file: Any) -> bool:
    """Whether a file is the one that was copied, unchanged or with data appended."""
    if known.inode != status.st_ino or status.st_size < known.size:
        return False
    file.seek(max(0, known.size - _TAIL))
    return bool(file.read(min(known.size, _TAIL)) == known.tail)


def _signed(content: bytes) -> bytes:
    return b"%08x\n" % zlib.crc32(content) + content


def _verified(content: bytes) -> dict[str, Any] | None:
    checksum, _, rest = content.partition(b"\n")
    if checksum != b"%08x" % zlib.crc32(rest):
        return None
    document: dict[str, Any] = json.loads(rest)
    return document


def _session_of(folder: Path) -> str | None:
    try:
        return (folder / SESSION_FILE).read_text(encoding="ascii")
    except OSError:
        return None


def _write_session(folder: Path, session: str) -> None:
    with replacing(folder / SESSION_FILE) as unfinished:
        unfinished.write_text(session, encoding="ascii")
