"""The interface that supplies trainings to a group on rank 0, and a wrapper of it that all workers call."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from sweeps_train.config import TrainingConfig
from sweeps_train.config.sharing import forbids_sharing
from sweeps_train.devices.device_operations import synchronize
from sweeps_train.errors import CannotShare
from sweeps_train.training_request import TrainingRequest
from sweeps_train.workers.distributed import Workers


class Feed(Protocol):
    """Supplies trainings for the lanes of a group. Only rank 0 calls it, between steps."""

    @property
    def measures(self) -> bool:
        """Whether ``stepped`` needs exact durations, for which rank 0 waits for its device after each step."""

    def has_next(self) -> bool:
        """Whether a training waits for a lane; called after each step while a lane is free."""

    def next(self, free: int) -> Sequence[TrainingRequest]:
        """Return at most ``free`` trainings. If no lane is training, wait for one; an empty result then ends the
        group."""

    def trains_alone(self, reason: str) -> bool:
        """Called if a training cannot share its model while no other one trains; return whether this training and all
        further ones train alone, one after another. Otherwise the training ends with an error."""

    def stepped(self, lanes: int, tokens: int, seconds: float) -> None:
        """Called after each step, with the number of trainings that took it, the tokens of all of them, and its
        duration."""

    def ended(self, request: TrainingRequest, error: Exception | None) -> None:
        """Called when a training ends, successfully or with an error; other trainings are not affected."""


class FeedOfAll:
    """Wrapper of the feed that all workers call: rank 0 calls the feed itself and broadcasts the answers."""

    def __init__(self, feed: Feed | None, workers: Workers):
        self._feed, self._workers = feed, workers

    def has_next(self) -> bool:
        """Whether a training waits for a lane, as far as this worker knows."""
        return self._feed is not None and self._feed.has_next()

    def next(self, free: int) -> Sequence[TrainingRequest]:
        """Return trainings; their reporters exist only on rank 0. Every worker must call it."""
        given = [] if self._feed is None else self._feed.next(free)
        if any(each.evaluator is not None for each in given):
            raise ValueError("an evaluator cannot be used with lanes, which evaluate themselves; give evaluator=None")
        self._workers.meet()  # the feed may have waited longer than a collective operation does
        here_only: dict[str, Any] = {"reporter": None, "on_prepared": _nothing}
        told = self._workers.broadcast([replace(each, **here_only) for each in given])
        return given if self._workers.rank == 0 else told

    def allows(self, base: TrainingConfig, request: TrainingRequest) -> bool:
        """Whether a training may share the base model of another one's config; if not, the training is ended with an
        error."""
        key = forbids_sharing([base, request.config])
        if key is not None:
            self.ended(request, ValueError(f"{key}: this training cannot share its workers with others"))
        return key is None

    def trains_alone(self, error: Exception) -> bool:
        """Whether all trainings train alone from now on, after one could not begin. Every worker must call it, with its
        own error."""
        alone = isinstance(error, CannotShare) and self._feed is not None and self._feed.trains_alone(error.reason)
        return bool(self._workers.broadcast(alone))

    def stepped(self, lanes: int, tokens: int, began: float) -> None:
        """Pass a step on to rank 0's feed; ``began`` is the time at which it began, by ``time.perf_counter``."""
        if self._feed is not None:
            if self._feed.measures:  # else the time is that of the launches, whatever a GPU still computes
                synchronize(self._workers.device)
            self._feed.stepped(lanes, tokens, time.perf_counter() - began)

    def ended(self, request: TrainingRequest, error: Exception | None) -> None:
        """Pass a training's end on to rank 0's feed; other workers print their errors, which rank 0 may not know."""
        if self._feed is not None:
            self._feed.ended(request, error)
        elif error is not None:
            traceback.print_exception(error)

    def raise_unless_shared(self, error: Exception) -> None:
        """Raise an error that may have occurred on this worker alone, since the group then cannot continue. Config
        mistakes occur on all workers; they are plain ``ValueError``s, whereas a damaged file raises a class derived
        from it."""
        if self._workers.size > 1 and type(error) is not ValueError:
            raise error


def _nothing() -> None:
    pass
