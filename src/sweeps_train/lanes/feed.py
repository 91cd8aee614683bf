"""The interface to whoever gives a group its trainings, on rank 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sweeps_train.training_request import TrainingRequest


class Feed(Protocol):
    """Trainings for the lanes of a group. Only rank 0 asks, at the boundaries of steps."""

    def has_next(self) -> bool:
        """Whether there is a training that waits for a lane; asked after each step while one is free."""

    def next(self, free: int) -> Sequence[TrainingRequest]:
        """Return at most ``free`` trainings. Where no lane trains, this waits for one; none then ends the group."""

    def ended(self, request: TrainingRequest, error: Exception | None) -> None:
        """Take notice of a training's end: as it should, or with an error, which leaves the others alone."""
