"""Main function of the worker processes of a slot with lanes, which train several trials at a time."""

from __future__ import annotations

from typing import Any

from sweeps.provenance.redacted_text import redacted_error
from sweeps.runtime.broker_sides import WorkersSide
from sweeps.runtime.environment import hide_options_of_ray
from sweeps.runtime.lane_feed import LaneFeed
from sweeps.runtime.lane_number import LaneNumber
from sweeps.runtime.open_files import write_open_files, write_open_files_at_exit
from sweeps.runtime.spare_processes import take_resources
from sweeps.runtime.worker_group_spec import Lanes
from sweeps.runtime.worker_log import WorkerLog
from sweeps.runtime.worker_loop import WorkerFailed, errors_printed
from sweeps.storage.location import joined
from sweeps.worker_error import describe_exception
from sweeps_train.errors import is_out_of_memory


def train_in_lanes(config: dict[str, Any]) -> None:
    """Train the trials of a slot until there are no more; runs on every worker.

    An error that does not belong to a single trial ends the worker, and with it the whole group.

    Args:
        config: ``slot`` (its name), ``broker`` and ``lanes``.
    """
    import ray.train

    take_resources()
    write_open_files_at_exit()
    hide_options_of_ray()
    slot, broker, lanes = config["slot"], config["broker"], config["lanes"]
    context = ray.train.get_context()
    rank, num_workers = context.get_world_rank(), context.get_world_size()
    log_folder = joined(lanes.log_folder, slot)
    feed = LaneFeed(slot, broker, num_workers, log_folder, _number(lanes, broker)) if rank == 0 else None
    try:
        with WorkerLog(rank, num_workers).of_trial(log_folder), errors_printed():
            _train(lanes, feed)
    except BaseException as error:  # noqa: BLE001 - sys.exit too
        write_open_files()
        if lanes.is_found_while_training:
            take_fewer_if_out_of_memory(error, rank, broker)
        description = redacted_error(describe_exception(error, rank, num_workers))
        broker.worker_of_slot_failed(slot, description)
        raise WorkerFailed(description.described) from None  # the error itself may not be picklable


def _number(lanes: Lanes, broker: WorkersSide) -> LaneNumber:
    """Return the configured number of trials at a time, or the initial one if the number is found while training."""
    if not lanes.is_found_while_training:
        return LaneNumber(lanes.number, lanes.number, is_found=True)
    start, reason = broker.lanes()
    return LaneNumber(lanes.number, start, is_found=reason is not None)


def take_fewer_if_out_of_memory(error: BaseException, rank: int, broker: WorkersSide) -> None:
    """Settle on half the current number of trials at a time if a worker has run out of memory; otherwise the workers
    that replace this group would begin with the same number and fail again."""
    number, reason = broker.lanes()
    if number > 1 and reason is None and is_out_of_memory(error):
        broker.set_lanes(number // 2, f"{number} do not fit into the memory of worker {rank}")


def _train(lanes: Lanes, feed: LaneFeed | None) -> None:
    if lanes.shared is not None:
        lanes.shared.check()
    from sweeps_train.lanes.train_lanes import train_lanes  # imports torch
    from sweeps_train.memory.device_memory import limit_memory

    limit_memory(lanes.memory_share)
    train_lanes(feed, lanes.number)
