"""What a trial's workers measured, written down beside its checkpoints before anybody is told of it: what the driver or
the tracking server has not taken yet when it dies is read back from there when the sweep goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

from sweeps.runtime.broker import Log, Report
from sweeps.tracking.held_checkpoints import UPLOADS

SPOOL_FILE = "reports.jsonl"
"""In the folder of a trial's checkpoints."""


class Spool:
    """The writing side, in the main worker of a trial."""

    def __init__(self, folder: str):
        """
        Args:
            folder: Of the trial's checkpoints; on storage that the driver sees.
        """
        path = Path(folder) / SPOOL_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("ab", buffering=0)  # what was written outlives the process at once
        if self._file.tell() and not _ends_with_newline(path):
            self._file.write(b"\n")  # an attempt that was killed has left half a line

    def write(self, event: Log | Report) -> None:
        """
        Raises:
            OSError: The disk is full, or away.
        """
        line = json.dumps({"kind": type(event).__name__, **event.__dict__}).encode() + b"\n"
        while line:  # on a disk that is just filling up, less is written than was asked for
            line = line[self._file.write(line) :]

    def close(self) -> None:
        self._file.close()


def read_spool(folder: str, up_to: int | None = None) -> Iterator[Log | Report]:
    """What all attempts of a trial have measured, in their order; half a line is no event.

    Args:
        folder: Of the trial's checkpoints.
        up_to: The last step that counts; default: all do.
    """
    path = Path(folder) / SPOOL_FILE
    if not path.is_file():
        return
    with path.open("rb") as lines:
        for line in lines:
            try:
                values = json.loads(line)
            except ValueError:
                continue
            kind = values.pop("kind")
            event = _here(Report(**values), path.parent) if kind == Report.__name__ else Log(**values)
            if up_to is None or event.step <= up_to:
                yield event


def _here(report: Report, folder: Path) -> Report:
    """With its checkpoint where the folder is now: it may have been moved."""
    if report.checkpoint is None:
        return report
    parts = Path(report.checkpoint).parts
    own = next(index for index, part in enumerate(parts) if part.startswith("step-"))
    held = None if report.held is None else str(folder / UPLOADS / Path(report.held).name)
    return replace(report, checkpoint=str(folder.joinpath(*parts[own:])), held=held)


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"
