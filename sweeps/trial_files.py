"""A trial's log files, in ``outputs/SWEEP/trials/ID/logs`` and among the artifacts of its run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from sweeps.worker_error import WorkerError

LOGS = "logs"
"""Folder in that of a trial, and among its run's artifacts."""
LEFT_OUT = re.compile(rb"^\[sweeps: (\d[\d,]*) bytes are left out here\]\n", re.MULTILINE)
"""The line in a log that says how much of it is not kept."""
START_LINE = "--- sweeps: "
"""Begins the line with which the log of each start of a worker begins."""


def logs_folder(sweep: Path, trial: str) -> Path:
    """
    Args:
        sweep: Folder of the sweep.
        trial: The trial's id.
    """
    return sweep / "trials" / trial / LOGS


def log_name(rank: int) -> str:
    """File of what one worker has printed and logged."""
    return f"worker-{rank}.log"


def traceback_name(attempt: int) -> str:
    """File of the tracebacks of an attempt that failed."""
    return f"attempt-{attempt}.traceback.txt"


def traceback_text(trial: str, attempt: int, errors: Sequence[WorkerError]) -> str:
    """
    Args:
        trial: The trial's id.
        attempt: Its number, from 1.
        errors: Of its workers, the cause first.
    """
    parts = [f"trial {trial}, attempt {attempt}: {errors[0].described}\n"]
    parts += [f"\n--- worker {each.rank} on {each.node} ---\n{each.traceback.rstrip()}\n" for each in errors]
    return "".join(parts)
