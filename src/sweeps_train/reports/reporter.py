"""Reporters: where a training sends its metrics and checkpoints, and asks whether to stop."""

from __future__ import annotations

import json
import sys
from enum import IntEnum
from typing import Protocol

from sweeps_train.reports.progress import Progress


class Stop(IntEnum):
    """A reporter's answer to whether to stop. Of several answers, the largest applies.

    >>> max(Stop.NO, Stop.SAVE).name
    'SAVE'
    """

    NO = 0
    """Continue."""
    SAVE = 1
    """Save a checkpoint, from which the training can be resumed, and return."""
    DISCARD = 2
    """Return immediately, without saving the work since the last report."""


class Reporter(Protocol):
    """Interface to which a training reports, on rank 0 only.

    All workers wait for a call, so it should return quickly; ``report`` may wait for a decision about the training.
    """

    @property
    def waits_for_decision(self) -> bool:
        """Whether ``report`` waits for a decision that needs the step's checkpoint. Otherwise ``checkpoint`` may
        deliver the checkpoint later."""

    def log(self, progress: Progress, metrics: dict[str, float]) -> None:
        """Receive training metrics (``train/*``), every ``train.log_every`` steps."""

    def report(self, progress: Progress, metrics: dict[str, float], checkpoint: str | None, done: bool) -> None:
        """Receive the metrics of an evaluation: ``eval/*`` and ``train/*``.

        A resumed training repeats the report of the checkpoint from which it continues, since the process may have died
        between saving and reporting; so reports should be stored by step.

        Args:
            progress: Position of the training.
            metrics: Values by name.
            checkpoint: Folder of a complete checkpoint of this step, if one was saved.
            done: Whether the training has reached its end; true exactly once.
        """

    def checkpoint(self, progress: Progress, metrics: dict[str, float], checkpoint: str) -> None:
        """Receive a checkpoint that was completed after the report of its step, or saved between two reports. May be
        called by another thread.

        Args:
            progress: Position of the checkpoint, which may be before that of the last report.
            metrics: Metrics that were reported at its step; empty if none were.
            checkpoint: Folder of the complete checkpoint.
        """

    def note(self, text: str) -> None:
        """Show the user a line of text."""

    def should_stop(self, *, can_save: bool = True) -> Stop:
        """Whether to stop; asked when metrics are logged, at evaluations, and after reports.

        Args:
            can_save: Whether a checkpoint of this step has been saved, or would be if the training is to stop. If not,
                the training is not asked to stop for a reason that can wait for its next checkpoint.
        """


class SilentReporter:
    """Reporter that ignores everything and never requests a stop."""

    waits_for_decision = False

    def log(self, progress: Progress, metrics: dict[str, float]) -> None:
        pass

    def report(self, progress: Progress, metrics: dict[str, float], checkpoint: str | None, done: bool) -> None:
        pass

    def checkpoint(self, progress: Progress, metrics: dict[str, float], checkpoint: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def should_stop(self, *, can_save: bool = True) -> Stop:
        return Stop.NO


class PrintReporter(SilentReporter):
    """Reporter that prints each event as a line of JSON on stdout.

    >>> PrintReporter().log(Progress(step=5), {"train/loss": 0.25})
    {"step": 5, "train/loss": 0.25}
    """

    def log(self, progress: Progress, metrics: dict[str, float]) -> None:
        self._print({"step": progress.step, **metrics})

    def report(self, progress: Progress, metrics: dict[str, float], checkpoint: str | None, done: bool) -> None:
        self._print({"step": progress.step, **metrics, "checkpoint": checkpoint, "done": done})

    def checkpoint(self, progress: Progress, metrics: dict[str, float], checkpoint: str) -> None:
        self._print({"step": progress.step, **metrics, "checkpoint": checkpoint})

    def note(self, text: str) -> None:
        self._print({"note": text})

    def _print(self, event: dict[str, object]) -> None:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()
