"""A trial's log files, in ``outputs/SWEEP/trials/ID/logs`` and among the artifacts of its run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from sweeps.storage.location import joined
from sweeps.worker_error import WorkerError

LOGS = "logs"
"""Name of the folder of logs in a trial's folder, and among the artifacts of its run."""
LEFT_OUT = re.compile(rb"^\[sweeps: (\d[\d,]*) bytes are left out here\]\n", re.MULTILINE)
"""Line in a log that replaces omitted bytes and gives their number."""
START_LINE = "--- sweeps: "
"""Beginning of a log's first line, which is repeated at each start of the worker."""


def logs_folder(sweep: Path, trial: str) -> Path:
    """Return the folder of a trial's logs."""
    return sweep / "trials" / trial / LOGS


def logs_location(sweep: str, trial: str) -> str:
    """Return the path or URI of the folder of a trial's logs, below that of the sweep's folder."""
    return joined(sweep, f"trials/{trial}/{LOGS}")


def log_name(rank: int) -> str:
    """Return the name of the file with a worker's output."""
    return f"worker-{rank}.log"


def traceback_name(attempt: int) -> str:
    """Return the name of the file with the tracebacks of a failed attempt."""
    return f"attempt-{attempt}.traceback.txt"


def flight_record_name(attempt: int, rank: int) -> str:
    """Return the name of the file with the last collective operations of a worker that hung."""
    return f"attempt-{attempt}.flight-record-{rank}.json"


def traceback_text(trial: str, attempt: int, errors: Sequence[WorkerError]) -> str:
    """Return the content of the file with the tracebacks of a failed attempt, whose number counts from 1. The first
    error is the cause."""
    parts = [f"trial {trial}, attempt {attempt}: {errors[0].described}\n"]
    parts += [f"\n--- worker {each.rank} on {each.node} ---\n{each.traceback.rstrip()}\n" for each in errors]
    return "".join(parts)
