"""Several trainings at a time on one group of workers, each as if it ran alone."""

from __future__ import annotations

from collections.abc import Sequence

from sweeps_train.devices.numerics import numerics
from sweeps_train.lanes.feed import Feed, FeedOfAll
from sweeps_train.lanes.shared_group import SharedGroup
from sweeps_train.lanes.shared_lockstep import SharedLockstep
from sweeps_train.loop import train_request
from sweeps_train.memory.allocator import keep_freed_memory
from sweeps_train.training_request import TrainingRequest
from sweeps_train.workers.distributed import Workers


def train_lanes(feed: Feed | None, num_lanes: int) -> None:
    """Train until the feed is empty. Every worker calls it.

    Each training computes the same values as when ``train`` runs it alone. An error of one training, such as a mistake
    in its config, data that cannot be read or an exception of its reporter, ends only that training. An error that only
    some workers may have, such as a full disk, ends all trainings, which then continue from their checkpoints.

    Args:
        feed: Supplies the trainings, on rank 0. They share the base of the first one if ``sweeps_train.config.sharing``
            allows it.
        num_lanes: Maximum number of trainings at a time.
    """
    given = FeedOfAll(feed, Workers.current())
    requests = given.next(num_lanes)
    while requests and not given.allows(requests[0].config, requests[0]):
        requests = requests[1:] or given.next(num_lanes)
    if not requests:
        return
    with keep_freed_memory(), numerics(requests[0].config.train):
        lanes = SharedLockstep(SharedGroup(requests[0]), given, num_lanes)
        try:
            requests = lanes.serve(requests)
        finally:
            lanes.close()
    del lanes  # its base would take memory
    _train_alone(given, requests)


def _train_alone(given: FeedOfAll, requests: Sequence[TrainingRequest]) -> None:
    """Train one training after another, each as ``train`` does, until the feed is empty."""
    while requests:
        for each in requests:
            try:
                train_request(each)
            except Exception as error:  # noqa: BLE001 - told by the feed
                given.ended(each, error)
                given.raise_unless_shared(error)
            else:
                given.ended(each, None)
        requests = given.next(1)
