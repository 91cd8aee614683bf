"""Retries of failed attempts, and the end of a sweep whose trials all fail with the same error.

An error before the first report is expected to recur with the same config, unless its cause is outside of the training:
a lost worker, a device that was out of memory, a connection, a disk. If another trial of the sweep has made a report,
such an error is retried too, until the sweep has seen it twice. Errors after the first report are retried as
``search.max_retries`` says.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from ray.tune.experiment import Trial as TuneTrial

from sweeps.constants import TRIAL
from sweeps.driver.not_pickled import NotPickled
from sweeps.errors import TrialFailed
from sweeps.search.advisors.failures import EXTERNAL_CAUSE, OUT_OF_MEMORY
from sweeps.worker_error import FROM_OUTSIDE, LONGEST_MESSAGE, WorkerError

ALIKE = 3
"""Number of trials that fail at their first step with the same error after which the sweep ends."""
WRONG_LABEL = re.compile("device-side assert", re.IGNORECASE)
"""CUDA error caused by the data: an index or a label out of range."""
WRONG_PATH = {"FileNotFoundError", "IsADirectoryError", "NotADirectoryError", "PermissionError", "FileExistsError"}
"""Errors of the operating system that recur; others may pass."""
NAMES_A_MISTAKE = re.compile(r"(ConfigError|UserError|ValueError|TypeError|KeyError)\b|[a-z_]+(\.[\w/-]+)*=")
"""Beginning of an error of the driver that recurs in every attempt."""


def recurs(text: str, error: WorkerError | None, *, reported: bool) -> bool:
    """Whether another attempt would fail with the same error.

    Args:
        text: The failure in a line.
        error: Error of the worker that caused it, if a worker has reported one.
        reported: Whether the trial has made a report, in this attempt or before.
    """
    if reported or (error is not None and error.kind in ("peer", "lost", "hang")):
        return False
    described = f"{error.type}: {error.message[:LONGEST_MESSAGE]}" if error is not None else text[:LONGEST_MESSAGE]
    if WRONG_LABEL.search(described):
        return True
    if any(pattern.search(described) for pattern in (OUT_OF_MEMORY, EXTERNAL_CAUSE, FROM_OUTSIDE)):
        return False
    if error is None:
        return NAMES_A_MISTAKE.match(described) is not None
    return "OSError" not in error.types or bool(WRONG_PATH & set(error.types))


class RetriedTrial(TuneTrial):
    """Tune's trial, retried only after transient errors. A trial becomes one when it starts."""

    mistake: str | None = None
    """Key by which the last error is compared with those of other trials; None if a retry may pass it."""
    alike: AlikeFailures | None = None
    """Errors of the whole sweep."""
    passes = False
    """Whether the last error may pass, since it is the first of its kind in a sweep whose trials make reports."""

    def handle_error(self, exc: Any = None) -> None:
        super().handle_error(exc)
        cause = getattr(exc, "cause", None)
        failed = cause if isinstance(cause, TrialFailed) else None
        error = failed.error if failed is not None and isinstance(failed.error, WorkerError) else None
        text = str(failed) if failed is not None else ""
        reported = self.alike is not None and self.alike.has_reported(self.config[TRIAL])
        is_mistake = recurs(text, error, reported=reported)
        self.mistake = (repr(error.alike) if error is not None else re.sub(r"\d+", "#", text)) if is_mistake else None
        self.passes = False
        if self.mistake is not None and self.alike is not None:
            names_it = error is None or NAMES_A_MISTAKE.match(error.message) is not None
            self.passes = self.alike.may_pass(self.mistake) and not names_it

    def should_recover(self) -> bool:
        return (self.mistake is None or self.passes) and bool(super().should_recover())  # type: ignore[no-untyped-call]


def retry_only_what_may_pass(trial: TuneTrial, alike: AlikeFailures) -> None:
    """Make Tune retry a trial only after transient errors."""
    if type(trial) is TuneTrial:
        trial.__class__ = RetriedTrial
        cast("RetriedTrial", trial).alike = alike


class AlikeFailures(NotPickled):
    """Counts trials that failed at their first step, by their error."""

    def __init__(self, has_reports: Callable[[], bool], has_reported: Callable[[str], bool]) -> None:
        """
        Args:
            has_reports: Returns whether a trial of the sweep has made a report.
            has_reported: Returns whether a given trial has made one in this session.
        """
        self.has_reported = has_reported
        self._counts: Counter[str] = Counter()
        self._has_reports = has_reports
        self._seen: set[str] = set()

    def may_pass(self, mistake: str) -> bool:
        """Whether an error may be transient: it is the first of its kind, and trials of the sweep have reported."""
        is_new = mistake not in self._seen
        self._seen.add(mistake)
        return is_new and self._has_reports()

    def add(self, trial: TuneTrial | None, reason: str) -> str | None:
        """Count a failed trial; returns a reason to start no further one, if all fail alike."""
        mistake = getattr(trial, "mistake", None)
        if mistake is None:
            return None
        self._counts[mistake] += 1
        if self._counts[mistake] < ALIKE:
            return None
        return f"{ALIKE} trials failed at their first step with the same error: {reason}"


def failure_reason(trial: TuneTrial) -> str:
    """The last line of the error that ended a trial's last attempt."""
    file = trial.error_file
    # Tune appends each error to a local file, which it copies to the path that it reads itself some time later.
    text = Path(file).read_text(encoding="utf-8") if file is not None and Path(file).exists() else ""
    lines = (text or str(trial.get_error() or "")).strip().splitlines() or ["unknown error"]
    return lines[-1].removeprefix("sweeps.errors.TrialFailed: ").strip()
