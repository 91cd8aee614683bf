"""The steps of lanes that share a group; a lane can start and end while the others train."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import torch

from sweeps_train.data.global_batches import GlobalBatch
from sweeps_train.lanes.feed import FeedOfAll
from sweeps_train.lanes.guarded_reporter import GuardedReporter
from sweeps_train.lanes.joint_passes import Work
from sweeps_train.lanes.lane import Lane
from sweeps_train.lanes.lane_strategy import LaneStrategy
from sweeps_train.lanes.lockstep import Lockstep
from sweeps_train.lanes.shared_group import PreparationFailed, SharedGroup
from sweeps_train.loop import live
from sweeps_train.steps.divergence import Diverged
from sweeps_train.training_request import TrainingRequest
from sweeps_train.workers.exchange import Rows

_ELSEWHERE = "another worker could not read its batch, or has too little memory for one sample; see the workers' log"


@dataclass(frozen=True)
class _Occupant:
    """The training in a lane, with its request."""

    request: TrainingRequest
    reporter: GuardedReporter | None
    times_restored: int


class SharedLockstep(Lockstep):
    """Fills lanes with trainings, and isolates the failures of one lane from the others."""

    group: SharedGroup

    def __init__(self, group: SharedGroup, feed: FeedOfAll, num_lanes: int):
        super().__init__(group)
        self._feed, self._num_lanes = feed, num_lanes
        self._occupants: dict[Lane, _Occupant] = {}
        self._asks = False
        """Whether to ask the feed for trainings at the next step boundary; the same on all workers."""

    def serve(self, requests: Sequence[TrainingRequest]) -> Sequence[TrainingRequest]:
        """Run these trainings and further ones from the feed, until no lane trains and the feed is empty; return the
        trainings that must train alone, as must all later ones."""
        while requests or self._lives:
            for number, each in enumerate(requests):
                if self._feed.allows(self.group.config, each) and not self._occupy(each):
                    return requests[number:]
            requests = []
            if self._lives:
                self.advance()
            free = self._num_lanes - len(self._lives)
            if not self._lives or (free and self._asks):
                with self.group.clock.stopped():
                    requests, self._asks = self._feed.next(free), False
        return []

    def close(self) -> None:
        """Close all lanes after a failure of their group; their next attempts continue from checkpoints."""
        for lane in [*self._lives]:
            self._lives.pop(lane).close()
            lane.close()

    def _occupy(self, request: TrainingRequest, samples: int | None = None, times_restored: int = 0) -> bool:
        """Begin a training in a free lane, or end it with an error; return False if it has to train alone instead.
        ``samples`` is its position in the order of the data, by default that of its checkpoint."""
        reporter = None if request.reporter is None else GuardedReporter(request.reporter)
        try:
            with self.group.clock.stopped():  # the other lanes wait
                self.group.passes.free_graphs()  # the new lane may measure how much memory is free
                resume = request.resume or times_restored > 0
                lane = Lane(replace(request, reporter=reporter, resume=resume), self.group)
        except Exception as error:  # noqa: BLE001 - whatever keeps it from beginning, the others train on
            if not isinstance(error, PreparationFailed):
                self._feed.raise_unless_shared(error)
            elif not self._lives and self._feed.trains_alone(error.error):
                return False
            self._use_lanes()
            self._asks = True
            self._feed.ended(request, error.error if isinstance(error, PreparationFailed) else error)
            return True
        if samples is not None:
            lane.continue_at(samples)
        self._occupants[lane] = _Occupant(request, reporter, times_restored)
        self._use_lanes(lane)
        self.begin(lane, live(lane, times_restored))
        return True

    def _resume(self, lane: Lane, reply: Rows | None) -> None:
        try:
            super()._resume(lane, reply)
        except Diverged as diverged:
            left = self._vacate(lane)
            self._occupy(left.request, diverged.samples, left.times_restored + 1)
        except Exception as error:  # noqa: BLE001 - whatever ends a lane, the others train on
            self._feed.raise_unless_shared(error)
            self._end(lane, error)
        else:
            if lane not in self._lives:
                self._end(lane, None)

    def _end(self, lane: Lane, error: Exception | None) -> None:
        left = self._vacate(lane)
        if left.reporter is not None and left.reporter.error is not None:
            error = left.reporter.error
        self._feed.ended(left.request, error)

    def _vacate(self, lane: Lane) -> _Occupant:
        """Empty a lane, which can be filled again at the next boundary."""
        self._waiting.pop(lane, None)
        with closing(lane):
            if (life := self._lives.pop(lane, None)) is not None:
                life.close()
        self._use_lanes()
        self._asks = True
        return self._occupants.pop(lane)

    def _use_lanes(self, *new: Lane) -> None:
        self.group.passes.use([_strategy(each) for each in (*self._lives, *new)])

    def _step(self, lanes: Sequence[Lane]) -> None:
        began = time.perf_counter()
        failed: dict[Lane, Exception] = {}
        batches: dict[Lane, GlobalBatch] = {}
        work: list[Work] = []
        for lane in lanes:
            of_lane = Work(_strategy(lane), lane.memory, [], 0.0)
            try:
                batch = batches[lane] = lane.begin_step()
            except Exception as error:  # noqa: BLE001 - whatever a data set raises, the other lanes train on
                failed[lane] = error
            else:
                of_lane = replace(of_lane, micro_batches=batch.micro_batches, scale=float(lane.loss_scale(batch)))
            work.append(of_lane)
        # Told along with the gradients: which lanes have failed on this worker, and whether others wait for a lane.
        waits = len(lanes) < self._num_lanes and self._feed.has_next()
        flags = torch.tensor([*(float(lane in failed) for lane in lanes), float(waits)])
        group, first, size = self.group, lanes[0], sum(each.size for each in batches.values())
        with group.communication.watching(first.progress.step), group.flops.counting(first.strategy, size):
            losses, flags, too_large = group.passes.backward(work, flags)
            failed |= {lanes[index]: error for index, error in too_large.items()}
            *have_failed, waits = (each > 0 for each in flags.tolist())
            self._asks |= waits
            for lane, loss, has_failed in zip(lanes, losses, have_failed, strict=True):
                if has_failed:
                    self._end(lane, failed.get(lane, OSError(_ELSEWHERE)))
                else:
                    self._end_step(lane, batches[lane], loss)
        self._feed.stepped(len(lanes), size, began)

    def _end_step(self, lane: Lane, batch: GlobalBatch, loss: torch.Tensor) -> None:
        try:
            lane.end_step(batch, loss)
        except Exception as error:  # noqa: BLE001 - such as one of a user's own optimizer
            self._feed.raise_unless_shared(error)
            self._end(lane, error)


def _strategy(lane: Lane) -> LaneStrategy:
    assert isinstance(lane.strategy, LaneStrategy)  # since the group makes no others
    return lane.strategy
