"""Where a training run tells what it measured, and learns that it should stop."""

from __future__ import annotations

import json
import sys
from typing import Protocol


class Reporter(Protocol):
    """What the loop calls, on rank 0 alone. A call should return quickly: all workers wait for it."""

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """A record of training: ``train/*``, every ``train.log_every`` steps."""

    def report(self, step: int, metrics: dict[str, float], checkpoint: str | None, done: bool) -> None:
        """An evaluation: ``eval/*``, and the ``train/*`` of a record.

        A training that is resumed repeats the report of the checkpoint that it starts from, since the process may
        have died between saving and reporting: whoever keeps reports should key them by step.

        Args:
            step: Optimizer steps done.
            metrics: Values by name.
            checkpoint: Folder of a complete checkpoint of this step, if one was saved.
            done: The training has reached its end; true exactly once.
        """

    def should_stop(self) -> bool:
        """Whether to save a checkpoint and return; asked at every record and evaluation."""


class PrintReporter:
    """Prints each event as a line of JSON on stdout; never asks to stop."""

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self._print({"step": step, **metrics})

    def report(self, step: int, metrics: dict[str, float], checkpoint: str | None, done: bool) -> None:
        self._print({"step": step, **metrics, "checkpoint": checkpoint, "done": done})

    def should_stop(self) -> bool:
        return False

    def _print(self, event: dict[str, object]) -> None:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()
