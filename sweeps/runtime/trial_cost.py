"""Cost of a trial so far, reported as metrics with each of its evaluations."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from sweeps.runtime.checkpoint_layout import Folder, checkpoint_folder
from sweeps.runtime.events import Report
from sweeps.runtime.report_log import REPORT_LOG_FILE, read_report_log
from sweeps.runtime.trial_assignment import Assignment
from sweeps.storage.object_store import ObjectStore


class CostMeter:
    """Counts the cost of a trial's workers while they train it, over all its attempts."""

    def __init__(self, assignment: Assignment):
        self._rates = assignment.hourly
        self._before = {name: assignment.spent.get(name, 0.0) for name in self._rates}
        self._evaluations = dict.fromkeys(self._rates, 0.0)
        self._began = time.monotonic()
        self._reported: dict[int, dict[str, float]] = {}
        if self._rates:
            for event in read_report_log(assignment.checkpoint_folder):
                if isinstance(event, Report):
                    self._before = {name: event.metrics.get(name, 0.0) for name in self._rates}
                    self._reported[event.step] = self._before

    def charge(self, hourly: Mapping[str, float], seconds: float) -> None:
        """Add the cost of an evaluation in another pool, given its cost per hour by metric."""
        for name in self._evaluations:
            self._evaluations[name] += hourly.get(name, 0.0) * seconds / 3600

    def at_report(self, step: int) -> dict[str, float]:
        """Return the cost until a report that is now made at a step, by metric; empty without prices and pools."""
        hours = (time.monotonic() - self._began) / 3600
        spent = {
            name: self._before[name] + rate * hours + self._evaluations[name] for name, rate in self._rates.items()
        }
        self._reported[step] = spent
        return spent

    def reported(self, step: int) -> dict[str, float]:
        """Return the cost that was reported at a step; empty if none was."""
        return self._reported.get(step, {})


def metrics_before(trials: Folder, trial: str, num_exploits: int) -> Mapping[str, float]:
    """Return the metrics of a trial's last report before it continued from another trial's state for the last time;
    empty without one.

    Raises:
        OSError: The object store does not answer.
    """
    for earlier in reversed(range(num_exploits)):
        folder = checkpoint_folder(trials, trial, earlier)
        with tempfile.TemporaryDirectory() as copy:
            if isinstance(folder, ObjectStore):
                with contextlib.suppress(FileNotFoundError):
                    folder.download(REPORT_LOG_FILE, Path(copy, REPORT_LOG_FILE))
                folder = Path(copy)
            reports = [event for event in read_report_log(str(folder)) if isinstance(event, Report)]
        if reports:
            return reports[-1].metrics
    return {}
