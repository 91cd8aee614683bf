"""The logs of a trial's workers: from the sweep's folder, where they grow, or from the artifacts of the trial's run."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sweeps.constants import TAG_FOLDER
from sweeps.errors import UnknownName
from sweeps.provenance.redacted_text import redacted_log
from sweeps.tracking.artifacts import list_names, read_text
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.trial_files import LEFT_OUT, LOGS, logs_folder

AT_MOST = 2**20
"""Bytes that are read at a time."""
END_BYTES = 2**17
"""Bytes of which the last lines are taken."""
LARGEST = 2**26
"""Bytes of a file beyond which it is no log of ours."""
_NAME = re.compile(r"worker-(\d{1,6})\.log")
_TRACEBACK = re.compile(r"attempt-(\d{1,6})\.traceback\.txt")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_OTHER_STACKS = re.compile(
    r"^(?:Thread|Current thread) 0x[^\n]*\n(?:  File (?!\"[^\n]*/sweeps/runtime/worker\.py\")[^\n]*\n)*(?:\n|\Z)"
    r"|^Extension modules: [^\n]*(?:\n|\Z)",
    re.MULTILINE,
)
"""Stacks of threads that do not train, which hide the one that does."""


@dataclass(frozen=True)
class LogPart:
    """A part of a worker's log, with secrets hidden."""

    text: str
    position: int
    """In all that the worker has printed: where the next part begins."""
    more: bool
    """Whether there is more already."""


class TrialLogs:
    """The logs of one trial, read anew at each call."""

    def __init__(self, record: SweepRecord, trial: TrialRecord) -> None:
        self._record, self._trial = record, trial
        folder = Path(record.tags.get(TAG_FOLDER, ""))
        self._folder = logs_folder(folder, trial.trial) if folder.is_absolute() else None

    def workers(self) -> list[int]:
        """Ranks of the workers that have a log."""
        return sorted(int(found[1]) for name in self._names() if (found := _NAME.fullmatch(name)))

    def part(self, worker: int, position: int = 0) -> LogPart:
        """A worker's output from a position on, in whole lines; a last line without an end comes when the trial
        has ended.

        Args:
            worker: Its rank.
            position: 0, or as the part before says.

        Raises:
            UnknownName: It has no log.
        """
        data = self._read(worker)
        text, start, more = _from(data, position)
        more = more or len(text) > AT_MOST
        text = text[:AT_MOST]
        if more or self._trial.state == "running":
            text = text[: text.rfind(b"\n") + 1 or (len(text) if more else 0)]
        return LogPart(printable(redacted_log(text.decode(errors="replace"))), start + len(text), more)

    def whole(self, worker: int) -> str:
        """All that is kept of a worker's log."""
        text, position, more = "", 0, True
        while more:
            part = self.part(worker, position)
            more = part.more and part.position > position
            text, position = text + part.text, part.position
        return text

    def end(self, worker: int, lines: int) -> list[str]:
        """The last lines of a worker's log."""
        data = self._read(worker)[-END_BYTES:]
        text = printable(redacted_log(data.decode(errors="replace")))
        return _OTHER_STACKS.sub("", text).rstrip().splitlines()[-lines:]

    def traceback(self) -> str | None:
        """Traceback of the last attempt that failed; None if there is none."""
        numbers = [int(found[1]) for name in self._names() if (found := _TRACEBACK.fullmatch(name))]
        if not numbers:
            return None
        text = self._bytes(f"attempt-{max(numbers)}.traceback.txt")
        return None if text is None else printable(text.decode(errors="replace"))

    def _names(self) -> Sequence[str]:
        if self._folder is not None and self._folder.is_dir():
            return sorted(path.name for path in self._folder.iterdir())
        return list_names(self._record.mlflow.tracking_uri, self._trial.run_id, LOGS)

    def _read(self, worker: int) -> bytes:
        data = self._bytes(f"worker-{worker}.log")
        if data is None:
            known = ", ".join(map(str, self.workers())) or "none"
            raise UnknownName(
                f"trial {self._trial.trial} of {self._record.sweep} has no log of worker {worker}; there is {known}"
            )
        return data

    def _bytes(self, name: str) -> bytes | None:
        if self._folder is not None and self._folder.is_dir():
            return _file(self._folder / name)
        text = read_text(self._record.mlflow.tracking_uri, self._trial.run_id, f"{LOGS}/{name}")
        return None if text is None else text.encode()


def printable(text: str) -> str:
    """Text without what a terminal would obey; of a line that was written over, such as a progress bar, the last
    state."""
    text = text.replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROL.sub("", text)


def _from(data: bytes, position: int) -> tuple[bytes, int, bool]:
    """The part after a position in all that was printed, of which the file may leave out a part; where it begins; and
    whether there is more behind it. Where the position is in what is left out, the line that says so comes first."""
    said = LEFT_OUT.search(data)
    if said is None:
        return data[position:], min(position, len(data)), False
    left_out = int(said[1].replace(b",", b""))
    after = left_out - (said.end() - said.start())
    """From a place in the file, behind the notice, to the position."""
    if position >= said.end() + after:
        return data[position - after :], position, False
    if position < said.start():
        return data[position : said.start()], position, True
    return said[0] + data[said.end() :], said.end() + after - len(said[0]), False


def _file(path: Path) -> bytes | None:
    """A regular file: a link could lead anywhere."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return file.read(LARGEST)
    except OSError:
        return None
