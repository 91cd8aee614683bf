"""The audit log: who has changed what, when and from where. A file of JSON lines, to which the service only appends."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass

from sweeps.config.service import Service
from sweeps.files.whole_files import FILE_MODE
from sweeps.provenance.machine import user
from sweeps.provenance.redaction import redacted
from sweeps.service.auth.permissions import Principal
from sweeps.service.clock import Clock

AUDIT_FILE = "audit.jsonl"
"""Name of the file, in the folder of the sweeps."""
MOST_READ = 16 * 2**20
"""Maximum bytes that are read for one page of entries."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, config=ConfigDict(use_attribute_docstrings=True))
class Entry:
    """A change that a user has made."""

    time: float
    """Time, in seconds since 1970 (UTC)."""
    user: str
    """User."""
    role: str
    """Role of the user's token."""
    token: int | None = None
    """Number of the token; null without tokens, and for the operator's command line."""
    address: str = ""
    """Address of the client, or of the proxy in front of it; empty for the operator's command line."""
    action: str
    """The change: ``submitted``, ``cancelled``, ``registered`` and so on."""
    about: dict[str, str | int | None]
    """Ids and names: ``job``, ``sweep``, ``schedule``, ``model``, ``token`` and so on."""


_ENTRY = TypeAdapter(Entry)


class Audit:
    """Writes and reads the audit log. Any number of processes of a machine may write it."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.file, self._clock = folder / AUDIT_FILE, clock

    def note(self, principal: Principal, action: str, **about: str | int | None) -> None:
        """Append an entry about a change that was made, and flush it to the disk. A failed write is logged and does not
        undo the change."""
        entry = Entry(
            time=self._clock.now(),
            user=principal.user,
            role=principal.role,
            token=principal.token,
            address=principal.address,
            action=action,
            about={name: redacted(value) if isinstance(value, str) else value for name, value in about.items()},
        )
        line = json.dumps(_ENTRY.dump_python(entry, mode="json", exclude_none=True))
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE)
            try:
                _append(handle, f"{line}\n".encode())
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            logger.error("%s: %s; not recorded: %s", self.file, error.strerror, line)  # noqa: TRY400 - no traceback needed

    def read(self, most: int, before: int | None = None, words: str = "") -> tuple[list[Entry], int | None]:
        """Return at most ``most`` entries in whose lines all words occur, newest first, and the position for the next
        page; None on the last one. ``before`` is the position of the previous page."""
        found = list[Entry]()
        wanted = words.lower().split()
        following = 0
        for position, line in self._lines(before):
            following = position
            with contextlib.suppress(ValueError):  # a line that was cut off because the disk was full
                text = json.dumps(json.loads(line), ensure_ascii=False) if "\\u" in line else line
                if all(word in text.lower() for word in wanted):
                    found.append(_ENTRY.validate_json(line))
            if len(found) == most:
                break
        return found, following or None

    def _lines(self, before: int | None) -> Iterator[tuple[int, str]]:
        """Yield the position and the text of each line, the last line first."""
        if not self.file.exists():
            return
        with self.file.open("rb") as file:
            position = min(file.seek(0, os.SEEK_END), 2**62 if before is None else before)
            start = file.seek(max(0, position - MOST_READ))
            lines = file.read(position - start).splitlines(keepends=True)
        for line in reversed(lines[1:] if start else lines):  # the first one may be incomplete
            position -= len(line)
            if line.strip():
                yield position, line.decode(errors="replace")


def note_of_operator(config: Service, action: str, **about: str | int | None) -> None:
    """Append an entry about a change by the operator on the command line."""
    Audit(config.folder, Clock()).note(Principal(user(), "admin"), action, **about)


def _append(handle: int, line: bytes) -> None:
    """Append a line in a single write, after completing a truncated last line.

    Raises:
        OSError: The line was not written, or only partly.
    """
    size = os.fstat(handle).st_size
    if size and os.pread(handle, 1, size - 1) != b"\n":
        line = b"\n" + line
    if os.write(handle, line) < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
