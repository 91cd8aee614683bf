"""Where a training run tells what it measured, and learns that it should stop."""

from __future__ import annotations

import json
import sys
from enum import IntEnum
from typing import Protocol

from sweeps_train.progress import Progress


class Stop(IntEnum):
    """What a training is asked to do at a record or an evaluation; the later in this list prevails."""

    NO = 0
    """Go on."""
    SAVE = 1
    """Save a checkpoint, from which it may go on one day, and return."""
    DISCARD = 2
    """Return at once: nobody wants what it has done since its last report."""


class Reporter(Protocol):
    """What the loop calls, on rank 0 alone. A call should return quickly, since all workers wait for it: unless that is
    what is wanted, at a report on which someone must decide before the training goes on."""

    def log(self, progress: Progress, metrics: dict[str, float]) -> None:
        """A record of training: ``train/*``, every ``train.log_every`` steps."""

    def report(self, progress: Progress, metrics: dict[str, float], checkpoint: str | None, done: bool) -> None:
        """An evaluation: ``eval/*``, and the ``train/*`` of a record.

        A training that is resumed repeats the report of the checkpoint that it starts from, since the process may
        have died between saving and reporting: whoever keeps reports should key them by step.

        Args:
            progress: How far the training is.
            metrics: Values by name.
            checkpoint: Folder of a complete checkpoint of this step, if one was saved.
            done: The training has reached its end; true exactly once.
        """

    def note(self, text: str) -> None:
        """Something that a person should know, in a line."""

    def should_stop(self) -> Stop:
        """Whether to stop, and how; asked at every record, at every evaluation, and after its report."""


class PrintReporter:
    """Prints each event as a line of JSON on stdout; never asks to stop."""

    def log(self, progress: Progress, metrics: dict[str, float]) -> None:
        self._print({"step": progress.step, **metrics})

    def report(self, progress: Progress, metrics: dict[str, float], checkpoint: str | None, done: bool) -> None:
        self._print({"step": progress.step, **metrics, "checkpoint": checkpoint, "done": done})

    def note(self, text: str) -> None:
        self._print({"note": text})

    def should_stop(self) -> Stop:
        return Stop.NO

    def _print(self, event: dict[str, object]) -> None:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()
