"""File of a study in Optuna's own format, written by one process; others may read it at the same time."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import finalize

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend

from sweeps.files.checksums import is_intact, mend, parsed, with_checksum

DAMAGED = ".damaged"
PARSED_TOGETHER = 1000
"""Number of lines that are parsed at once, which takes a third of the time of single lines."""

Log = dict[str, Any]
"""A change of the study."""


class StudyFile(BaseJournalBackend):
    """Appends changes to the file, each as one line with a checksum, which Optuna's own backend ignores.

    Optuna's own backend, for several writers, takes a lock, opens the file, waits for the disk and reads its line again
    for each value of each trial: on a busy disk that was the first limit on the number of trials an hour. Here the file
    stays open, what was written is not read again, and only changes that others depend on wait for the disk. A trial
    whose values are being sampled is not used by anything else, so its lines reach the disk together with the next line
    that is waited for.
    """

    def __init__(self, path: Path):
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        finalize(self, os.close, self._file)
        self._failed_at: int | None = None
        """Size before a change that could neither be written as a whole nor be cut off; None if there is none."""
        self._unread: list[bytes] | None = None
        """Lines that were appended since Optuna last read; None until it has read the file."""
        self._num_read = 0

    def append_logs(self, logs: list[Log]) -> None:
        lines = [with_checksum(json.dumps(log, separators=(",", ":")).encode()) + b"\n" for log in logs]
        self._cut_off_failed()
        left, size = b"".join(lines), os.fstat(self._file).st_size
        try:
            while left:  # on a disk that is filling up, a write may take only a part
                left = left[os.write(self._file, left) :]
            if not all(map(_is_half_sampled, logs)):
                os.fsync(self._file)
        except OSError:
            self._failed_at = size
            with suppress(OSError):  # else before the next change
                self._cut_off_failed()
            raise
        if self._unread is not None:
            self._unread += lines

    def _cut_off_failed(self) -> None:
        """Remove the lines of a failed call, whose change Optuna has not made."""
        if self._failed_at is not None:
            os.ftruncate(self._file, self._failed_at)
            self._failed_at = None

    def read_logs(self, log_number_from: int) -> Iterable[Log]:
        if self._unread is None or log_number_from < self._num_read:
            return self._read_file(log_number_from)
        lines = self._unread[log_number_from - self._num_read :]
        self._unread, self._num_read = [], self._num_read + len(self._unread)
        return [json.loads(line) for line in lines]

    def _read_file(self, log_number_from: int) -> Iterator[Log]:
        with self._path.open("rb") as file:
            lines = file.readlines()
        self._unread, self._num_read = [], len(lines)
        for start in range(log_number_from, len(lines), PARSED_TOGETHER):
            yield from json.loads(b"[%b]" % b",".join(lines[start : start + PARSED_TOGETHER]))


def _is_half_sampled(log: Log) -> bool:
    """Whether a change concerns only a trial whose values are being sampled."""
    return "param_name" in log or ("datetime_start" in log and "state" not in log)


def open_study_storage(path: Path) -> tuple[JournalStorage, str | None]:
    """Open the storage in a file. Its caller must be the only writer.

    Each change is written as one line before Optuna acts on it. So an incomplete line at the end is a change that
    nothing depends on. Flipped bits are corrected. Lines after one that cannot be read may depend on it, and are cut
    off as well; a copy of the file is kept beside it.

    Returns:
        The storage, and a description of the file's damage (None if there is none).
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # otherwise Optuna logs every suggestion
    path.with_name(path.name + ".lock").unlink(missing_ok=True)  # left by a dead writer; Optuna would wait 30 s for it
    wrong = None
    if path.exists() and not _is_as_written(path):
        if (damage := mend(path)).corrected:
            wrong = f"{path.name}: {damage}"
        size, intact = path.stat().st_size, _intact_bytes(path)
        if intact < size:
            shutil.copy2(path, path.with_name(path.name + DAMAGED))
            with path.open("r+b") as file:
                file.truncate(intact)
                os.fsync(file.fileno())
            wrong = f"{path.name} could be read up to byte {intact:,} of {size:,}, and continues from there"
    return JournalStorage(StudyFile(path)), wrong


def _is_as_written(path: Path) -> bool:
    """Whether each line has the right checksum."""
    with path.open("rb") as lines:
        return all(line.endswith(b"\n") and is_intact(line[:-1]) for line in lines)


def _intact_bytes(path: Path) -> int:
    """Return the number of bytes before the first line that is not one of Optuna's."""
    intact = 0
    with path.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                break
            if not is_intact(line[:-1]):  # else it is as it was written, and need not be parsed
                try:
                    parsed(line)
                except ValueError:
                    break
            intact += len(line)
    return intact
