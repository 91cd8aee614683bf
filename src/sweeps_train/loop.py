"""The one training loop: every task, in one process or many, on GPUs or CPUs, under Ray Train or without it."""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sweeps_train.checkpoint import (
    Progress,
    latest_checkpoint,
    load_checkpoint,
    read_metrics,
    remove_superseded,
    remove_unfinished,
    save_checkpoint,
)
from sweeps_train.config import Train, TrainingConfig, check_batch_split
from sweeps_train.data.samples import Batch, SampleOrder, in_batches
from sweeps_train.optimizer import build_optimizer, learning_rate
from sweeps_train.precision import Precision
from sweeps_train.random_state import seed_all
from sweeps_train.reporter import Reporter
from sweeps_train.tasks import Task, build_task
from sweeps_train.workers import Workers


def train(
    config: TrainingConfig,
    *,
    reporter: Reporter | None,
    checkpoint_folder: str | None,
    resume: bool = True,
    metric: str = "eval/loss",
    mode: str = "min",
) -> None:
    """Trains to the end of the config, or until the reporter asks to stop. Every worker calls it.

    Args:
        config: The same on all workers.
        reporter: Hears of metrics and checkpoints on rank 0; those of other ranks are not called.
        checkpoint_folder: Where this run's checkpoints are, on a file system that all workers share; None saves none.
        resume: Go on from the newest complete checkpoint there. From a checkpoint training continues exactly, to the
            last bit on CPUs with one or two workers; more than two may add their gradients in another order.
        metric: What decides which checkpoint is the best.
        mode: Whether ``min`` or ``max`` of it is best.

    Raises:
        ValueError: Something in the config cannot work; the message names the key and the fix.
    """
    workers = Workers.current()
    reporter = reporter if workers.rank == 0 else None
    micro_batch_size, _ = check_batch_split(config.train, workers.size)
    root = Path(checkpoint_folder) if checkpoint_folder is not None else None
    start = _starting_point(root, workers, resume=resume)

    seed_all(config.seed)  # alike on all workers, which build the same weights
    task = build_task(config, start)
    total_steps = _total_steps(config.train, len(task.train_samples))
    model = workers.replicate(task.model.to(workers.device).train())
    optimizer = build_optimizer(task.model, config.train)
    precision = Precision(config.train.precision, workers.device)
    order = SampleOrder(len(task.train_samples), config.seed)

    seed_all(config.seed, workers.rank)  # apart, since workers' dropout must differ
    progress = Progress()
    if start is not None:
        progress = load_checkpoint(start, optimizer, precision, workers)
        # Its report is repeated: the process may have died between saving and reporting.
        reported = read_metrics(start)
        ended = progress.step >= total_steps
        if ended and reported is None:  # stopped between two evaluations, and now shortened to there
            reported, _ = _evaluate(task, precision, workers, micro_batch_size, reporter)
        if reporter is not None and reported is not None:
            reporter.report(progress.step, reported, str(start), ended)

    window = _Window(workers)
    while progress.step < total_steps:
        lr = learning_rate(config.train, progress.step, total_steps)
        for group in optimizer.param_groups:
            group["lr"] = lr
        indices = order.take(progress.samples, config.train.global_batch_size)
        window.loss += _backward(task, model, precision, workers, indices, micro_batch_size)
        _update(task.model, optimizer, precision, config.train.max_grad_norm)
        window.units += task.train_samples.units(indices)
        window.size += task.train_samples.size(indices)
        progress.step += 1
        progress.samples += len(indices)

        done = progress.step == total_steps
        evaluates = done or progress.step % config.train.eval_every == 0
        saves = done or progress.step % (config.checkpoint.every or config.train.eval_every) == 0
        if not (evaluates or saves or progress.step % config.train.log_every == 0):
            continue

        # What follows happens at the same steps on all workers, so that they meet in its reductions.
        metrics, stops = window.close(task, reporter)
        metrics["train/lr"] = lr
        metrics["train/epoch"] = progress.samples / len(task.train_samples)
        metrics["train/num_workers"] = float(workers.size)
        if evaluates:
            evaluation, stops_now = _evaluate(task, precision, workers, micro_batch_size, reporter)
            metrics |= evaluation
            stops = stops or stops_now
            _check_metric(metric, metrics)
        checkpoint = None
        if root is not None and (saves or stops):
            reported = metrics if evaluates else None
            checkpoint = save_checkpoint(root, config, task, optimizer, precision, progress, reported, workers)
            if workers.rank == 0:
                remove_superseded(root, config.checkpoint.keep, metric, mode, finished=done)
        if reporter is not None and evaluates:
            kept = checkpoint is not None and checkpoint.exists()
            reporter.report(progress.step, metrics, str(checkpoint) if kept else None, done)
        elif reporter is not None:
            reporter.log(progress.step, metrics)
        if stops:
            return
        window = _Window(workers)


def _starting_point(root: Path | None, workers: Workers, *, resume: bool) -> Path | None:
    """The checkpoint that all workers go on from: the one that rank 0 sees."""
    if root is None:
        return None
    newest = None
    if workers.rank == 0:
        remove_unfinished(root)
        newest = latest_checkpoint(root)
    newest = workers.from_first(newest)
    if newest is not None and not resume:
        raise ValueError(
            f"checkpoint_folder={root} holds checkpoints of an earlier training; "
            "go on from them with resume=True, or give an empty folder"
        )
    return newest


def _total_steps(config: Train, num_samples: int) -> int:
    if config.global_batch_size > num_samples:
        raise ValueError(
            f"train.global_batch_size={config.global_batch_size} is more than the {num_samples} training samples; "
            f"use at most {num_samples}, or more data"
        )
    if config.max_steps is not None:
        return config.max_steps
    assert config.epochs is not None
    return math.ceil(config.epochs * num_samples / config.global_batch_size)


def _backward(
    task: Task,
    model: nn.Module,
    precision: Precision,
    workers: Workers,
    indices: list[int],
    micro_batch_size: int,
) -> torch.Tensor:
    """Gradients of the mean loss over the units of a global batch, however they are spread over workers and micro
    batches; returns this worker's part of the summed loss."""
    share = workers.share(indices)
    # Gradients are averaged over the workers, hence their number.
    scale = workers.size / task.train_samples.units(indices)
    total = torch.zeros((), dtype=torch.float64, device=workers.device)
    for start in range(0, len(share), micro_batch_size):
        batch = _to(task.train_samples.batch(share[start : start + micro_batch_size]), workers.device)
        is_last = start + micro_batch_size >= len(share)
        with _synchronization(model, is_last):
            with precision.autocast():
                loss = task.loss(model, batch)
            precision.scaler.scale(loss * scale).backward()
        total += loss.detach()
    return total


def _synchronization(model: nn.Module, wanted: bool) -> AbstractContextManager[None]:
    """Workers exchange gradients once a step, in its last backward pass."""
    if wanted or not isinstance(model, DistributedDataParallel):
        return nullcontext()
    context: AbstractContextManager[None] = model.no_sync()
    return context


def _update(
    model: nn.Module, optimizer: torch.optim.Optimizer, precision: Precision, max_grad_norm: float | None
) -> None:
    """Moves the weights; with fp16, a step whose gradients have overflowed is skipped and the scale lowered."""
    if max_grad_norm is not None:
        precision.scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    precision.scaler.step(optimizer)
    precision.scaler.update()
    optimizer.zero_grad()


@torch.no_grad()
def _evaluate(
    task: Task, precision: Precision, workers: Workers, batch_size: int, reporter: Reporter | None
) -> tuple[dict[str, float], bool]:
    """``eval/*`` over the held-out samples, each counted once, and whether to stop."""
    # The bare model: workers may have different numbers of batches, and the wrapper's forward pass communicates.
    model, samples = task.model.eval(), task.eval_samples
    workers.synchronize_buffers(model)
    scores = torch.zeros(task.num_scores, dtype=torch.float64, device=workers.device)
    for indices in in_batches(workers.share(range(len(samples))), batch_size):
        batch = _to(samples.batch(indices), workers.device)
        with precision.autocast():
            scores += task.score(model, batch)
    model.train()
    *totals, stops = workers.sum([*scores.tolist(), _stop_vote(reporter)])
    return task.metrics(totals, samples.units(range(len(samples)))), stops > 0


class _Window:
    """Training since the last record, without the time of evaluations and checkpoints."""

    def __init__(self, workers: Workers):
        self._workers = workers
        self._began = time.perf_counter()
        self.loss = torch.zeros((), dtype=torch.float64, device=workers.device)
        """This worker's part of the summed loss; left on the device, which is not waited for."""
        self.units = 0
        """Of all workers."""
        self.size = 0
        """Of all workers."""

    def close(self, task: Task, reporter: Reporter | None) -> tuple[dict[str, float], bool]:
        """Loss and speed, and whether to stop."""
        loss, stops = self._workers.sum([self.loss.item(), _stop_vote(reporter)])
        seconds = time.perf_counter() - self._began
        return {"train/loss": loss / self.units, f"train/{task.speed}": self.size / seconds}, stops > 0


def _stop_vote(reporter: Reporter | None) -> float:
    return float(reporter is not None and reporter.should_stop())


def _check_metric(metric: str, metrics: dict[str, float]) -> None:
    if metric not in metrics:
        raise ValueError(f"search.metric={metric} is not reported; use one of {sorted(metrics)}")


def _to(batch: Batch, device: torch.device) -> Batch:
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
