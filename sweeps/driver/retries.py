"""Decisions to retry failed attempts, and to end a sweep whose trials fail with the same error, one after another.

An error before the first report is expected to recur with the same config, unless its cause is outside of the training:
a lost worker, a device that was out of memory, a connection, a disk. If another trial of the sweep has made a report,
such an error is retried too, until the sweep has seen it twice. Errors after the first report are retried as
``search.max_retries`` says.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.search.advisors.failures import EXTERNAL_CAUSE, OUT_OF_MEMORY
from sweeps.texts.wording import counted
from sweeps.worker_error import FROM_OUTSIDE, LONGEST_MESSAGE, WorkerError, names_a_mistake

if TYPE_CHECKING:
    from ray.tune.experiment import Trial as TuneTrial

    from sweeps.driver.sweep_state import SweepState
    from sweeps.driver.trial_status import TrialStatus

ALIKE = 3
"""Number of trials that must fail at their first step with the same error, before any trial has made a report, for the
sweep to end."""
WRONG_LABEL = re.compile("device-side assert", re.IGNORECASE)
"""Pattern of CUDA errors caused by the data: an index or a label out of range."""
WRONG_PATH = {"FileNotFoundError", "IsADirectoryError", "NotADirectoryError", "PermissionError", "FileExistsError"}
"""Errors of the operating system that recur; others may be transient."""


def recurs(text: str, error: WorkerError | None, *, reported: bool) -> bool:
    """Whether another attempt would fail with the same error.

    Args:
        text: Description of the failure in one line.
        error: Error of the worker that caused it, if a worker has reported one.
        reported: Whether the trial has made a report.
    """
    if reported or (error is not None and error.kind in ("peer", "lost", "hang")):
        return False
    described = f"{error.type}: {error.message[:LONGEST_MESSAGE]}" if error is not None else text[:LONGEST_MESSAGE]
    if WRONG_LABEL.search(described):
        return True
    if any(pattern.search(described) for pattern in (OUT_OF_MEMORY, EXTERNAL_CAUSE, FROM_OUTSIDE)):
        return False
    if error is None:
        return names_a_mistake(described)
    return "OSError" not in error.types or bool(WRONG_PATH & set(error.types))


class Retries:
    """Decides whether failed attempts of a search are retried, and whether one trial after another fails at its start
    with the same error.

    Before any report of the search in this session, ``ALIKE`` such trials are enough. Later, failures of new trials may
    come from a region of the space that they share. So more are needed, without any report among them, and twice as
    many once reports have followed the same error, three times as many after the next ones, and so on.
    """

    def __init__(self, state: SweepState) -> None:
        self._state = state
        self._mistakes: dict[str, str] = {}
        """Key by which the last error of each failed trial is compared with other trials' errors; no entry if the error
        may be transient."""
        self._counts: Counter[str] = Counter()
        """Number of trials that failed at their start since the last report, by key."""
        self._passed: Counter[str] = Counter()
        """Number of times that a report has followed such a failure, by its key."""
        self._seen: set[str] = set()
        self.num_reports = 0
        """Number of reports of this search in this session."""

    def begin(self) -> None:
        """Reset the counts for another search."""
        self._mistakes.clear()
        self._counts.clear()
        self._passed.clear()
        self._seen.clear()
        self.num_reports = 0

    def reported(self, status: TrialStatus, step: int) -> None:
        """Record that a trial has made a report that counts. Workers that continue may repeat that of their checkpoint,
        which does not tell whether they can train."""
        status.has_reported = True
        if 0 < step <= status.begins_at:
            return
        status.has_begun = True
        self.num_reports += 1
        self._passed.update(self._counts.keys())
        self._counts.clear()

    def allows(self, status: TrialStatus, text: str, error: WorkerError | None = None) -> bool | None:
        """Return whether a failed attempt is retried; None if trials are being stopped and ``resume`` will decide.

        Args:
            status: The trial.
            text: Description of the failure in one line.
            error: Error of the worker that caused it, if a worker has reported one.
        """
        if self._state.shutdown.interrupts_trials():
            return None
        self._mistakes.pop(status.trial, None)
        mistake = repr(error.alike) if error is not None else re.sub(r"\d+", "#", text)
        if recurs(text, error, reported=status.has_begun):
            self._mistakes[status.trial] = mistake
            may_pass = self._may_pass(mistake) and error is not None and not names_a_mistake(error.message)
            if not may_pass and not status.has_reported:
                return False
        is_allowed = max(1, status.attempt) <= self._max_retries  # 0: its workers were faster than Tune
        is_raised = error is not None and error.kind == "exception" and not OUT_OF_MEMORY.search(error.described)
        if not is_allowed and is_raised and not status.has_begun:
            self._mistakes[status.trial] = mistake  # such as a full disk of all trials, which did not pass
        return is_allowed

    @property
    def _max_retries(self) -> int:
        return self._state.composition.config.search.max_retries

    def max_deaths(self, trial: str) -> int:
        """Return how many times a trial may be retried after losing its actor."""
        status = self._state.trials.get(trial)
        return max(0, self._max_retries - (0 if status is None else status.retries))

    def _may_pass(self, mistake: str) -> bool:
        """Whether an error may be transient: it is the first of its kind, and some trial of the sweep has reported."""
        is_new = mistake not in self._seen
        self._seen.add(mistake)
        return is_new and any(each.has_reported for each in self._state.all_trials)

    def failed(self, trial: str, reason: str) -> str | None:
        """Count a failed trial; return a reason to start no further trial if one after another fails at its start with
        the same error, else None."""
        mistake = self._mistake(trial, reason)
        if mistake is None:
            return None
        self._counts[mistake] += 1
        most = ALIKE
        if self.num_reports:
            most = 2 * max(ALIKE, self._state.concurrent) * (1 + self._passed[mistake])
        return self.described(self._counts[mistake], reason) if self._counts[mistake] >= most else None

    def at_start(self, trial: str, reason: str) -> bool:
        """Whether a trial has failed before its first report since its workers started, with an error that recurs."""
        return self._mistake(trial, reason) is not None

    @staticmethod
    def described(number: int, reason: str) -> str:
        """Describe that trials failed with the same error."""
        if number == 1:
            return f"a trial that had reported failed when it started again: {reason}"
        return f"{counted(number, 'trial')} failed at their first step with the same error: {reason}"

    def _mistake(self, trial: str, reason: str) -> str | None:
        """Return the key of a failed trial's error; None if it came after a report, or may be transient."""
        status = self._state.trials.get(trial)
        if status is not None and status.has_begun:
            return None
        mistake = self._mistakes.get(trial)
        if mistake is None and names_a_mistake(reason):  # an error of the trial's actor, before it had workers
            mistake = re.sub(r"\d+", "#", reason)
        return mistake


def failure_reason(trial: TuneTrial) -> str:
    """Return the last line of the error with which a trial's actor ended."""
    file = trial.error_file
    # Tune appends each error to a local file, which it copies to the path that it reads itself some time later.
    text = Path(file).read_text(encoding="utf-8") if file is not None and Path(file).exists() else ""
    lines = (text or str(trial.get_error() or "")).strip().splitlines() or ["unknown error"]
    return lines[-1].removeprefix("sweeps.errors.TrialFailed: ").strip()
