"""The report log: a file beside a trial's checkpoints to which its main worker writes every event before posting it.
After the death of a driver or of the tracking server, events that were not recorded are read from this file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

from sweeps.files.checksums import end_last_line, parsed, undamaged_lines, with_checksum
from sweeps.runtime.events import Log, Report, Saved
from sweeps.storage.location import is_remote
from sweeps.tracking.held_checkpoints import UPLOADS

KINDS: dict[str, type[Log]] = {each.__name__: each for each in (Log, Report, Saved)}
REPORT_LOG_FILE = "reports.jsonl"
"""Name of the file, in the folder of a trial's checkpoints."""


class ReportLog:
    """Writer of a trial's report log."""

    def __init__(self, folder: str):
        """
        Args:
            folder: Folder of the trial's checkpoints, on storage that the driver sees.
        """
        path = Path(folder) / REPORT_LOG_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("ab", buffering=0)  # unbuffered: a line outlives the process at once
        end_last_line(path)  # of an attempt that was killed

    def write(self, event: Log) -> None:
        """Write an event. For a report, it and the logs before it have reached the disk when this returns: a trial that
        continues from the next checkpoint does not measure them again.

        Raises:
            OSError: The disk is full or cannot be reached.
        """
        line = with_checksum(json.dumps({"kind": type(event).__name__, **event.__dict__}).encode()) + b"\n"
        while line:  # on a disk that is filling up, a write may take only a part
            line = line[self._file.write(line) :]
        if isinstance(event, Report | Saved):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def read_report_log(folder: str, up_to: int | None = None) -> Iterator[Log]:
    """Read the events of all attempts of a trial, in order. Truncated and damaged lines are skipped; ``mend`` reports
    the damaged ones.

    Args:
        folder: Folder of the trial's checkpoints.
        up_to: Last step to read; default: all steps.
    """
    path = Path(folder) / REPORT_LOG_FILE
    if not path.is_file():
        return
    with path.open("rb") as lines:
        for line in undamaged_lines(lines):
            try:
                values = parsed(line)
                event = _relocated(KINDS[values.pop("kind")](**values), path.parent)
            except (ValueError, KeyError, TypeError):  # damaged, or of another release
                continue
            if up_to is None or event.step <= up_to:
                yield event


def _relocated(event: Log, folder: Path) -> Log:
    """Return the event with its checkpoint's current path, since the sweep's folder may have been moved."""
    if not isinstance(event, Report | Saved) or event.checkpoint is None or is_remote(event.checkpoint):
        return event
    parts = Path(event.checkpoint).parts
    step = max(index for index, part in enumerate(parts) if part.startswith("step-"))  # a parent may have such a name
    held = None if event.held is None else str(folder / UPLOADS / Path(event.held).name)
    return replace(event, checkpoint=str(folder.joinpath(*parts[step:])), held=held)
