"""The training loop: train, evaluate, save, report. The same loop serves every task and strategy, with or without Ray
Train."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

from sweeps_train.config import TrainingConfig
from sweeps_train.config.better import as_objectives
from sweeps_train.devices.numerics import numerics
from sweeps_train.lanes.group import Group
from sweeps_train.lanes.lane import Lane
from sweeps_train.lanes.lockstep import Life, Lockstep
from sweeps_train.memory.allocator import keep_freed_memory
from sweeps_train.reports.pending_reports import Evaluator
from sweeps_train.reports.reporter import Reporter, Stop
from sweeps_train.steps.divergence import Diverged
from sweeps_train.training_request import TrainingRequest


def train(
    config: TrainingConfig,
    *,
    reporter: Reporter | None,
    checkpoint_folder: str | None,
    resume: bool = True,
    metric: str | Sequence[str] = "eval/loss",
    mode: str | Sequence[str] = "min",
    largest_micro_batch: int | None = None,
    on_prepared: Callable[[], object] = lambda: None,
    evaluator: Evaluator | None = None,
    failures: int = 0,
) -> None:
    """Train to the end of the config, or until the reporter requests a stop. Every worker calls it.

    Args:
        config: The training, the same on all workers.
        reporter: Receives metrics and checkpoints; used on rank 0 only.
        checkpoint_folder: Folder of this training's checkpoints, on a file system that all workers share; None saves
            none.
        resume: Continue from the newest complete checkpoint there, if any. The result is that of an uninterrupted
            training: bit for bit on CPUs with one or two workers; more may sum gradients in another order.
        metric: Metric by which the best checkpoint is chosen; see ``best_checkpoint``.
        mode: Whether ``min`` or ``max`` of it is best.
        largest_micro_batch: Micro batch size that is known to fit into memory from an earlier attempt.
        on_prepared: Called by each worker when its data and model are loaded, before it waits for the others; loading
            may take hours.
        evaluator: Computes the evaluations from checkpoints, while the training continues; used on rank 0 only, and
            given on all. By default the workers evaluate.
        failures: Number of earlier attempts that have failed, for ``checkpoint.every=auto``.

    Raises:
        ValueError: Something in the config cannot work; the message names the key and the fix.
        MicroBatchHalved: A device ran out of memory where workers wait for each other; restart from the last
            checkpoint with ``largest_micro_batch=error.half``.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from sweeps_train import TRAINING_CONFIG, train
        >>> config = TRAINING_CONFIG.validate_python({
        ...     "task": {"kind": "image_classification"},
        ...     "model": {"kind": "conv_net"},
        ...     "data": {"kind": "digits"},
        ...     "train": {"max_steps": 2},
        ...     "strategy": {"kind": "ddp"},
        ...     "checkpoint": {},
        ... })
        >>> folder = tempfile.mkdtemp()
        >>> train(config, reporter=None, checkpoint_folder=folder)
        >>> [path.name for path in Path(folder).iterdir()]
        ['step-00000002']
    """
    train_request(
        TrainingRequest(
            config=config,
            reporter=reporter,
            checkpoint_folder=checkpoint_folder,
            resume=resume,
            objectives=as_objectives(metric, mode),
            largest_micro_batch=largest_micro_batch,
            on_prepared=on_prepared,
            evaluator=evaluator,
            failures=failures,
        )
    )


def train_request(request: TrainingRequest) -> None:
    """Train as ``train`` does: return to the last checkpoint each time the training diverges, up to the permitted
    number."""
    samples, times_restored = None, 0
    with keep_freed_memory(), numerics(request.config.train):
        group = Group(request)
        while True:
            lane = Lane(request, group)
            try:
                with closing(lane):
                    if samples is not None:
                        lane.continue_at(samples)
                    return Lockstep(group).run(lane, live(lane, times_restored))
            except Diverged as diverged:
                samples, times_restored = diverged.samples, times_restored + 1
                request = replace(request, resume=True)
            del lane  # its memory is needed by the next one


def live(lane: Lane, times_restored: int = 0) -> Life:
    """Train a lane to its end, or until its reporter asks for a stop; a coroutine that ``Lockstep`` advances. The
    report of a checkpoint to which the training has gone back is not repeated.

    Raises:
        Diverged: The training must return to its last checkpoint.
    """
    lane.resume_evaluations()
    stop = Stop.NO if times_restored else (yield from lane.repeat_last_report())
    while stop is Stop.NO and not lane.is_done:
        yield None
        due = yield from lane.due_actions()
        if due is None:
            continue
        metrics, stop = yield from lane.train_metrics(per_worker=due.evaluate)
        if lane.divergence.has_diverged(metrics["train/loss"]):
            due = lane.end_diverged(times_restored)
        evaluates = due.evaluate and lane.evaluates
        if evaluates and stop is not Stop.DISCARD:
            eval_metrics, stop_now = lane.evaluate()
            metrics, stop = metrics | eval_metrics, max(stop, stop_now)
        if stop is Stop.DISCARD:
            lane.finish()
            return
        if evaluates:
            lane.check_metric(metrics)
        saves = due.save or (stop is Stop.SAVE and not lane.is_done)  # no weights of a training that has diverged
        if not due.evaluate:
            lane.log(metrics)  # first, since a killed training continues after the step of its checkpoint
        checkpoint = lane.save(metrics if evaluates else None, stops=stop is Stop.SAVE) if saves else None
        if not due.evaluate:
            continue
        stop = max(stop, (yield from lane.report(metrics, checkpoint)))
        if stop is Stop.SAVE and not saves and not lane.is_done:
            lane.save(metrics, stops=True)
    lane.finish()
    lane.deliver_reports()
