"""Logs of a trial's workers, read from the sweep's folder if it is here, otherwise from the artifacts of the trial's
run."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from sweeps.constants import TAG_FOLDER
from sweeps.errors import UnknownName
from sweeps.folders.trial_files import LEFT_OUT, LOGS, logs_folder, logs_location
from sweeps.provenance.redacted_text import redacted_log
from sweeps.storage.location import is_remote
from sweeps.storage.object_store import ObjectStore
from sweeps.texts.printable import printable
from sweeps.tracking.artifacts import if_readable, list_names, read_text
from sweeps.tracking.record import SweepRecord, TrialRecord

AT_MOST = 2**20
"""Maximum bytes in one part of a log."""
END_BYTES = 2**17
"""Number of bytes at the end of a log that are searched for its last lines."""
LARGEST = 2**26
"""Maximum bytes that are read from a file; logs that Sweeps writes are smaller."""
_NAME = re.compile(r"worker-(\d{1,6})\.log")
_TRACEBACK = re.compile(r"attempt-(\d{1,6})\.traceback\.txt")
_OTHER_STACKS = re.compile(
    r"^(?:Thread|Current thread) 0x[^\n]*\n(?:  File (?!\"[^\n]*/sweeps/runtime/worker_loop\.py\")[^\n]*\n)*(?:\n|\Z)"
    r"|^Extension modules: [^\n]*(?:\n|\Z)",
    re.MULTILINE,
)
"""Pattern of the stacks of threads other than the training one, which are left out."""


@dataclass(frozen=True, config=ConfigDict(use_attribute_docstrings=True))
class LogPart:
    """A part of a worker's log, at most 1 MiB, with secrets hidden."""

    text: str
    """Text of this part."""
    position: int
    """Position of the next part, in bytes of all output of the worker so far."""
    more: bool
    """Whether the next part can already be read."""


class TrialLogs:
    """Reader of the logs of one trial. Each call reads the files again."""

    def __init__(self, record: SweepRecord, trial: TrialRecord) -> None:
        self._record, self._trial = record, trial
        location = record.tags.get(TAG_FOLDER, "")
        folder = Path(location)
        self._folder = logs_folder(folder, trial.trial) if folder.is_absolute() else None
        self._store = ObjectStore(logs_location(location, trial.trial)) if is_remote(location) else None

    def workers(self) -> list[int]:
        """Return the ranks of the workers that have a log."""
        return sorted(int(found[1]) for name in self._names() if (found := _NAME.fullmatch(name)))

    def read(self, worker: int, position: int = 0) -> LogPart:
        """Return the next complete lines of a worker's output, from 0 or the position of the previous part on. A last
        line without a line end is returned only after the trial has ended.

        Raises:
            UnknownName: The worker has no log.
        """
        data = self._log(worker)
        text, start, more = _from(data, position)
        more = more or len(text) > AT_MOST
        text = text[:AT_MOST]
        if more or self._trial.state == "running":
            text = text[: text.rfind(b"\n") + 1 or (len(text) if more else 0)]
        return LogPart(redacted_log(printable(text.decode(errors="replace"))), start + len(text), more)

    def read_all(self, worker: int) -> str:
        """Return a worker's whole log; a long log has a gap in the middle."""
        text, position, more = "", 0, True
        while more:
            part = self.read(worker, position)
            more = part.more and part.position > position
            text, position = text + part.text, part.position
        return text

    def last_lines(self, worker: int, lines: int) -> list[str]:
        """Return the last lines of a worker's log."""
        data = self._log(worker)[-END_BYTES:]
        text = redacted_log(printable(data.decode(errors="replace")))
        return _OTHER_STACKS.sub("", text).rstrip().splitlines()[-lines:]

    def traceback(self) -> str | None:
        """Return the traceback of the last failed attempt; None if there is none."""
        numbers = [int(found[1]) for name in self._names() if (found := _TRACEBACK.fullmatch(name))]
        if not numbers:
            return None
        text = self._bytes(f"attempt-{max(numbers)}.traceback.txt")
        return None if text is None else printable(text.decode(errors="replace"))

    def _names(self) -> Sequence[str]:
        if (folder := self._folder_here()) is not None:
            return sorted(path.name for path in folder.iterdir())
        uri, run_id = self._record.mlflow.tracking_uri, self._trial.run_id
        return sorted({*self._stored_names(), *(if_readable(lambda: list_names(uri, run_id, LOGS)) or ())})

    def _folder_here(self) -> Path | None:
        """Return the folder of the logs; None if it is not on this machine, or is another user's private one."""
        return self._folder if self._folder is not None and os.access(self._folder, os.R_OK | os.X_OK) else None

    def _stored_names(self) -> Sequence[str]:
        """Return the names of the logs in the sweep's object store; empty if the store does not answer."""
        try:
            return [] if self._store is None else [*self._store.names()]
        except OSError:
            return []

    def _log(self, worker: int) -> bytes:
        data = self._bytes(f"worker-{worker}.log")
        if data is None:
            known = ", ".join(map(str, self.workers())) or "none"
            raise UnknownName(
                f"trial {self._trial.trial} of {self._record.sweep} has no log of worker {worker}; workers with "
                f"a log: {known}"
            )
        return data

    def _bytes(self, name: str) -> bytes | None:
        if (folder := self._folder_here()) is not None:
            return _file(folder / name)
        if self._store is not None and name in self._stored_names():
            return self._store.read(name)
        text = read_text(self._record.mlflow.tracking_uri, self._trial.run_id, f"{LOGS}/{name}")
        return None if text is None else text.encode()


def _from(data: bytes, position: int) -> tuple[bytes, int, bool]:
    """Return a log from a position in the worker's whole output: the bytes, the position at which they begin, and
    whether there are more after them.

    The log may omit a part of the output. If the position is in that part, the notice about it comes first.
    """
    notice = LEFT_OUT.search(data)
    if notice is None:
        return data[position:], min(position, len(data)), False
    shift = int(notice[1].replace(b",", b"")) - (notice.end() - notice.start())
    """Difference between a position in the output and its position in the log, after the notice."""
    if position >= notice.end() + shift:
        return data[position - shift :], position, False
    if position < notice.start():
        return data[position : notice.start()], position, True
    return notice[0] + data[notice.end() :], notice.end() + shift - len(notice[0]), False


def _file(path: Path) -> bytes | None:
    """Return the content of a regular file; None for a symbolic link, which could lead anywhere."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return file.read(LARGEST)
    except OSError:
        return None
