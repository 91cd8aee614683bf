"""The loop of a slot's worker processes, in which they train one trial after another."""

from __future__ import annotations

import contextlib
import functools
import itertools
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweeps.provenance.redacted_text import redacted_error
from sweeps.runtime.checkpoint_layout import newest_step
from sweeps.runtime.environment import hide_options_of_ray
from sweeps.runtime.events import Ended
from sweeps.runtime.memory_cleanup import MemoryCleanup
from sweeps.runtime.open_files import write_open_files, write_open_files_at_exit
from sweeps.runtime.pool_evaluator import PoolEvaluator
from sweeps.runtime.signs_of_life import signs_of_life
from sweeps.runtime.spare_processes import take_resources
from sweeps.runtime.stored_trial import StoredTrial, in_store
from sweeps.runtime.trial_assignment import Assignment
from sweeps.runtime.trial_reporter import BrokerReporter
from sweeps.runtime.users_runs import users_runs_ended
from sweeps.runtime.worker_log import WorkerLog, stream_to
from sweeps.worker_error import describe_exception
from sweeps_train.config import CommandConfig, EstimatorConfig, FunctionConfig, TrainingConfig
from sweeps_train.errors import MicroBatchHalved


class WorkerFailed(Exception):
    """Raised to end a worker whose error was already reported to the broker."""


def train_assignments(config: dict[str, Any]) -> None:
    """Train the trials of a slot, one after another, until there are no more; runs on every worker.

    An error ends the worker, and with it the whole group: the other workers may be waiting for it in a collective
    operation.

    Args:
        config: ``slot`` (its name) and ``broker``.
    """
    import ray.train

    take_resources()
    write_open_files_at_exit()
    hide_options_of_ray()
    slot, broker = config["slot"], config["broker"]
    context = ray.train.get_context()
    rank, num_workers = context.get_world_rank(), context.get_world_size()
    cleanup, log = MemoryCleanup(), WorkerLog(rank, num_workers)
    for index in itertools.count():
        assignment: Assignment | None = broker.next_assignment(slot, index)
        if assignment is None:
            return
        try:
            with (
                in_store(assignment, rank) as (here, stored),
                log.of_trial(here.log_folder),
                errors_printed(),
                users_runs_ended(f"{assignment.sweep}-{assignment.trial}"),
            ):
                saved = _train(here, stored, is_main=rank == 0)
        except MicroBatchHalved as halved:  # reported at once, since all other workers wait for this one
            broker.end(Ended(*assignment.key, str(halved), halved_to=halved.half))
            raise
        except BaseException as error:  # noqa: BLE001 - sys.exit too
            write_open_files()
            description = redacted_error(describe_exception(error, rank, num_workers))
            broker.worker_failed(*assignment.key, description)
            raise WorkerFailed(description.described) from None  # the error itself may not be picklable
        broker.worker_finished(*assignment.key, rank, num_workers, cleanup.run(), saved)


@contextlib.contextmanager
def errors_printed() -> Iterator[None]:
    """Print the traceback of an error at the end of the log, as Python does when a program fails."""
    try:
        yield
    except MicroBatchHalved:
        raise
    except BaseException:
        with contextlib.suppress(OSError), stream_to(2) as log:  # the training may have closed sys.stderr
            traceback.print_exc(file=log)
        raise


def _train(assignment: Assignment, stored: StoredTrial | None, *, is_main: bool) -> int | None:
    """Train one trial; on the main worker, return the step of its newest checkpoint."""
    reporter = BrokerReporter(assignment, stored) if is_main else None
    training = assignment.training
    if assignment.memory_share is not None and isinstance(training, FunctionConfig | TrainingConfig):
        from sweeps_train.memory.device_memory import limit_memory

        limit_memory(assignment.memory_share)
    places: Any = {
        "reporter": reporter,
        "checkpoint_folder": assignment.checkpoint_folder,
        "metric": assignment.metrics,
        "mode": assignment.modes,
    }
    if isinstance(training, CommandConfig):
        from sweeps_train.command.run import TrialIdentity, run_command

        run_command(training, identity=TrialIdentity(assignment.sweep, *assignment.key), **places)
    else:
        with signs_of_life(assignment) as end_signs:
            # The imports take seconds, and minutes on a busy machine; those of a user's function, too.
            if isinstance(training, FunctionConfig | EstimatorConfig):
                from sweeps_train.frameworks.ray_train import run_function

                run_function(training, on_prepared=end_signs, **places)
            else:
                from sweeps_train.loop import train

                train(
                    training,
                    largest_micro_batch=assignment.largest_micro_batch,
                    on_prepared=end_signs,
                    evaluator=_evaluator(assignment, reporter),
                    failures=assignment.failures,
                    **places,
                )
    if reporter is None:
        return None
    reporter.flush()
    return newest_step(Path(assignment.checkpoint_folder))


def _evaluator(assignment: Assignment, reporter: BrokerReporter | None) -> PoolEvaluator | None:
    if assignment.evaluation is None:
        return None
    charge = reporter.cost.charge if reporter is not None else lambda *_: None
    alive = functools.partial(assignment.broker.alive, *assignment.key)
    return PoolEvaluator(assignment.evaluation, assignment.shared, charge, alive, assignment.prepare_timeout_s)
