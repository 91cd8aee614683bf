"""Whether a failed attempt of a trial is tried again, and whether a sweep whose trials fail alike goes on.

An error before the first report comes again with the same config, unless it came from outside: a lost worker, a device
that was out of memory, a connection, a disk. In a sweep of which some trial has made a report it may have passed, too:
it is tried again, until the sweep has seen the same error twice. Later errors are retried as ``search.max_retries``
says.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from ray.tune.experiment import Trial as TuneTrial

from sweeps.constants import STEP
from sweeps.errors import TrialFailed
from sweeps.search.advisors.failures import EXTERNAL_CAUSE, OUT_OF_MEMORY
from sweeps.worker_error import FROM_OUTSIDE, LONGEST_MESSAGE, WorkerError

ALIKE = 3
"""Trials that may fail at their first step with the same error, before the sweep ends with it."""
WRONG_LABEL = re.compile("device-side assert", re.IGNORECASE)
"""A CUDA error that the data cause: an index or a label out of range."""
WRONG_PATH = {"FileNotFoundError", "IsADirectoryError", "NotADirectoryError", "PermissionError", "FileExistsError"}
"""Errors of the system that come again; its others may pass."""
NAMES_A_MISTAKE = re.compile(r"(ConfigError|UserError|ValueError|TypeError|KeyError)\b|[a-z_]+(\.[\w/-]+)*=")
"""How an error of the driver begins that no other attempt would mend."""


def comes_again(text: str, error: WorkerError | None, *, reported: bool) -> bool:
    """Whether another attempt would fail likewise.

    Args:
        text: The failure in a line.
        error: Of the worker that caused it, if a worker has told.
        reported: The trial has made a report, in this attempt or before.
    """
    if reported or (error is not None and error.kind in ("peer", "lost", "hang")):
        return False
    said = f"{error.type}: {error.message[:LONGEST_MESSAGE]}" if error is not None else text[:LONGEST_MESSAGE]
    if WRONG_LABEL.search(said):
        return True
    if any(pattern.search(said) for pattern in (OUT_OF_MEMORY, EXTERNAL_CAUSE, FROM_OUTSIDE)):
        return False
    if error is None:
        return NAMES_A_MISTAKE.match(said) is not None
    return "OSError" not in error.types or bool(WRONG_PATH & set(error.types))


class RetriedTrial(TuneTrial):
    """Tune's trial, which is tried again only after errors that may pass. A trial becomes one when it starts."""

    mistake: str | None = None
    """If the last error comes again: what is the same of two such errors."""
    alike: AlikeFailures | None = None
    """Errors of the whole sweep."""
    passes = False
    """The last error may pass, since it is the first of its kind in a sweep that works."""

    def handle_error(self, exc: Any = None) -> None:
        super().handle_error(exc)
        cause = getattr(exc, "cause", None)
        failed = cause if isinstance(cause, TrialFailed) else None
        error = failed.error if failed is not None and isinstance(failed.error, WorkerError) else None
        text = str(failed) if failed is not None else ""
        is_mistake = comes_again(text, error, reported=STEP in (self.last_result or {}))
        self.mistake = (repr(error.alike) if error is not None else re.sub(r"\d+", "#", text)) if is_mistake else None
        self.passes = False
        if self.mistake is not None and self.alike is not None:
            names_it = error is None or NAMES_A_MISTAKE.match(error.message) is not None
            self.passes = self.alike.may_pass(self.mistake) and not names_it

    def should_recover(self) -> bool:
        return (self.mistake is None or self.passes) and bool(super().should_recover())  # type: ignore[no-untyped-call]


def retry_only_what_may_pass(trial: TuneTrial, alike: AlikeFailures) -> None:
    """Makes a trial of Tune's one whose mistakes are not retried.

    Args:
        trial: Tune's.
        alike: Errors of the whole sweep.
    """
    if type(trial) is TuneTrial:
        trial.__class__ = RetriedTrial
        cast("RetriedTrial", trial).alike = alike


class AlikeFailures:
    """Counts trials that failed at their first step, by their error."""

    def __init__(self, works: Callable[[], bool]) -> None:
        """
        Args:
            works: Whether a trial of the sweep has made a report.
        """
        self._counts: Counter[str] = Counter()
        self._works = works
        self._seen: set[str] = set()

    def __reduce__(self) -> tuple[type[object], tuple[()]]:
        # Tune pickles its trials for a restore that we do not use.
        return object, ()

    def may_pass(self, mistake: str) -> bool:
        """Whether a trial's error is the first of its kind, in a sweep that works."""
        is_new = mistake not in self._seen
        self._seen.add(mistake)
        return is_new and self._works()

    def add(self, trial: TuneTrial | None, why: str) -> str | None:
        """A trial has failed; returns why no further one is worth starting, if none of the sweep has ever reported.

        Args:
            trial: Tune's.
            why: Its error in a line.
        """
        mistake = getattr(trial, "mistake", None)
        if mistake is None:
            return None
        self._counts[mistake] += 1
        if self._counts[mistake] < ALIKE:
            return None
        return f"{ALIKE} trials failed at their first step with the same error: {why}"
