"""Several trainings at a time on one group of workers, each as if it were alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import torch

from sweeps_train.allocator import keep_freed_memory
from sweeps_train.config import TrainingConfig
from sweeps_train.config.sharing import forbids_sharing
from sweeps_train.distributed import Workers
from sweeps_train.divergence import Diverged
from sweeps_train.exchange import Rows
from sweeps_train.lane import Lane
from sweeps_train.lanes.feed import Feed
from sweeps_train.lanes.guarded_reporter import GuardedReporter
from sweeps_train.lanes.joint_passes import Work
from sweeps_train.lanes.lane_strategy import LaneStrategy
from sweeps_train.lanes.shared_group import SharedGroup
from sweeps_train.lockstep import Lockstep
from sweeps_train.loop import live
from sweeps_train.numerics import numerics
from sweeps_train.training_request import TrainingRequest


def train_lanes(feed: Feed | None, num_lanes: int) -> None:
    """Train until the feed has no more trainings. Every worker calls it.

    Each training gets the values that ``train`` gives it alone. An error in one, such as a mistake in its config or
    an exception of its reporter, ends that one; errors of a single worker end the group.

    Args:
        feed: Gives the trainings, which ``forbids_sharing`` must allow; on rank 0.
        num_lanes: Trainings at a time.
    """
    workers = Workers.current()
    requests = next_requests(workers, feed, num_lanes)
    if not requests:
        return
    with keep_freed_memory(), numerics(requests[0].config.train):
        lanes = SharedLockstep(SharedGroup(requests[0]), feed, num_lanes)
        try:
            lanes.serve(requests)
        finally:
            lanes.close()


def next_requests(workers: Workers, feed: Feed | None, free: int) -> list[TrainingRequest]:
    """Trainings for free lanes, on all workers; the reporters are on rank 0 alone."""
    given = [] if feed is None else feed.next(free)
    if any(each.evaluator is not None for each in given):
        raise ValueError("an evaluator is not for lanes, which evaluate themselves; give evaluator=None")
    here_only: dict[str, Any] = {"reporter": None, "on_prepared": _nothing}
    told = workers.broadcast([replace(each, **here_only) for each in given])
    return list(given) if workers.rank == 0 else told


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class _Occupant:
    """The training of a lane, as it was asked for."""

    request: TrainingRequest
    reporter: GuardedReporter | None
    times_restored: int


class SharedLockstep(Lockstep):
    """Lanes that begin and end while the others train."""

    group: SharedGroup

    def __init__(self, group: SharedGroup, feed: Feed | None, num_lanes: int):
        super().__init__(group)
        self._feed, self._num_lanes = feed, num_lanes
        self._occupants: dict[Lane, _Occupant] = {}
        self._may_have_next = False
        """Whether the feed is asked at the next boundary; the same on all workers."""

    def serve(self, requests: Sequence[TrainingRequest]) -> None:
        """Train these, and then what the feed gives."""
        while requests:
            for each in requests:
                self._occupy(each)
            requests = []
            while self._lives and not requests:
                self.advance()
                free = self._num_lanes - len(self._lives)
                if free and self._may_have_next:
                    requests = next_requests(self.group.workers, self._feed, free)
                    self._may_have_next = False
            if not self._lives and not requests:
                requests = next_requests(self.group.workers, self._feed, self._num_lanes)

    def close(self) -> None:
        """Leave all lanes, which have failed with their group, to the attempts that continue them."""
        for lane in [*self._lives]:
            self._lives.pop(lane).close()
            lane.close()

    def _occupy(self, request: TrainingRequest, samples: int | None = None, times_restored: int = 0) -> None:
        """Begin a training in a free lane.

        Args:
            request: The training.
            samples: Position in the order of the data; None for that of its checkpoint.
            times_restored: Number of times that it has gone back to a checkpoint.
        """
        reporter = None if request.reporter is None else GuardedReporter(request.reporter)
        try:
            self._check_sharing(request.config)
            lane = Lane(replace(request, reporter=reporter, resume=request.resume or times_restored > 0), self.group)
        except ValueError as error:
            self._may_have_next = True
            self._tell_end(request, error)
            return
        if samples is not None:
            lane.continue_at(samples)
        self._occupants[lane] = _Occupant(request, reporter, times_restored)
        self.begin(lane, live(lane, times_restored))

    def _check_sharing(self, config: TrainingConfig) -> None:
        present = [each.request.config for each in self._occupants.values()]
        if (key := forbids_sharing([*present, config])) is not None:
            raise ValueError(f"{key}: this training cannot share its workers with the others")

    def begin(self, lane: Lane, life: Any) -> None:
        self._lives[lane] = life
        try:
            self._use_lanes()
        except ValueError as error:
            self._end(lane, error)
        else:
            self._resume(lane, None)

    def _use_lanes(self) -> None:
        self.group.passes.use([_strategy(lane) for lane in self._lives])

    def _resume(self, lane: Lane, reply: Rows | None) -> None:
        try:
            super()._resume(lane, reply)
        except Diverged as diverged:
            left = self._vacate(lane)
            self._occupy(left.request, diverged.samples, left.times_restored + 1)
        except Exception as error:
            if self.group.workers.size > 1 and not isinstance(error, ValueError):
                raise  # other workers may not have it
            self._end(lane, error)
        else:
            if lane not in self._lives:
                self._end(lane, None)

    def _end(self, lane: Lane, error: Exception | None) -> None:
        left = self._vacate(lane)
        if left.reporter is not None and left.reporter.error is not None:
            error = left.reporter.error
        self._tell_end(left.request, error)

    def _vacate(self, lane: Lane) -> _Occupant:
        """Empty a lane, which may be taken at the next boundary."""
        self._waiting.pop(lane, None)
        with closing(lane):
            if (life := self._lives.pop(lane, None)) is not None:
                life.close()
        self._use_lanes()
        self._may_have_next = True
        return self._occupants.pop(lane)

    def _tell_end(self, request: TrainingRequest, error: Exception | None) -> None:
        if self._feed is not None:
            self._feed.ended(request, error)

    def _step(self, lanes: Sequence[Lane]) -> None:
        failed: dict[Lane, Exception] = {}
        batches = {}
        for lane in lanes:
            try:
                batches[lane] = lane.begin_step()
            except Exception as error:  # noqa: BLE001 - whatever a data set raises, the other lanes train on
                failed[lane] = error
        free = self._num_lanes > len(lanes)
        has_next = free and self._feed is not None and self._feed.has_next()
        flags = [*(float(lane in failed) for lane in lanes), float(has_next)]
        group, first, size = self.group, lanes[0], sum(each.size for each in batches.values())
        told = torch.tensor(flags, dtype=torch.float32).to(group.workers.device, non_blocking=True)
        with group.communication.watching(first.progress.step), group.flops.counting(first.strategy, size):
            work = [
                Work(_strategy(lane), batches[lane].micro_batches, lane.loss_scale(batches[lane]))
                if lane in batches
                else Work(_strategy(lane), [], 0.0)
                for lane in lanes
            ]
            losses = group.passes.backward(work, told)
            heard = told.tolist() if group.workers.size > 1 else flags
            self._may_have_next |= heard[-1] > 0
            for lane, loss, is_failed in zip(lanes, losses, heard, strict=False):
                if is_failed:
                    self._end(lane, failed.get(lane) or RuntimeError("another worker could not read its batch"))
                else:
                    self._end_step(lane, batches[lane], loss)

    def _end_step(self, lane: Lane, batch: Any, loss: torch.Tensor) -> None:
        try:
            lane.end_step(batch, loss)
        except ValueError as error:  # of a user's own optimizer, on all workers
            self._end(lane, error)


def _strategy(lane: Lane) -> LaneStrategy:
    assert isinstance(lane.strategy, LaneStrategy)
    return lane.strategy
