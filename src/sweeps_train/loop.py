"""The one training loop: every task, in one process or many, on GPUs or CPUs, under Ray Train or without it."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from sweeps_train.allocator import freed_memory_kept
from sweeps_train.batch_scaling import choose_batch_factor
from sweeps_train.checkpoint import (
    load_checkpoint,
    newest_intact,
    read_metrics,
    remove_superseded,
    remove_unfinished,
    save_checkpoint,
)
from sweeps_train.communication import CommunicationMeter
from sweeps_train.config import TrainingConfig, check_batch_split
from sweeps_train.config.strategy import DDP, num_stages
from sweeps_train.data.loader import feed
from sweeps_train.data.sampler import Batch, SampleOrder, in_batches
from sweeps_train.distributed import Workers
from sweeps_train.flops import FlopMeter, peak_tflops
from sweeps_train.micro_batch import cut, find_micro_batch_size, largest_divisor, recall, remember, rows
from sweeps_train.optimizer import build_optimizer, learning_rate
from sweeps_train.out_of_memory import MicroBatchHalved
from sweeps_train.precision import Precision
from sweeps_train.progress import Progress, check_enough, count_steps
from sweeps_train.random_state import seed_all
from sweeps_train.reporter import Reporter, Stop
from sweeps_train.strategies import build_strategy
from sweeps_train.strategies.strategy import on_device
from sweeps_train.tasks import build_task
from sweeps_train.train_metrics import HALVINGS, Window

_log = logging.getLogger(__name__)


def train(
    config: TrainingConfig,
    *,
    reporter: Reporter | None,
    checkpoint_folder: str | None,
    resume: bool = True,
    metric: str = "eval/loss",
    mode: str = "min",
    largest_micro_batch: int | None = None,
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
        largest_micro_batch: What fits, if an earlier attempt has found that out.

    Raises:
        ValueError: Something in the config cannot work; the message names the key and the fix.
        MicroBatchHalved: A device has run out of memory, and the workers cannot go on together.
    """
    with freed_memory_kept():
        training = _Training(config, reporter, checkpoint_folder, metric, mode, largest_micro_batch, resume=resume)
        try:
            if training.repeat_report() is not Stop.NO:
                return
            while training.progress.step < training.total_steps:
                training.step()
                boundary = training.boundary() or training.stopped_between()
                if boundary is not None and training.settle(boundary):
                    return
        finally:
            training.close()


@dataclass(frozen=True)
class _Boundary:
    """A step after which the loop records; the same steps on all workers, which meet in its reductions."""

    evaluates: bool
    saves: bool
    done: bool


class _Training:
    """All that a training consists of, from its first step or from a checkpoint."""

    def __init__(
        self,
        config: TrainingConfig,
        reporter: Reporter | None,
        checkpoint_folder: str | None,
        metric: str,
        mode: str,
        largest_micro_batch: int | None,
        *,
        resume: bool,
    ):
        self.config, self.metric, self.mode = config, metric, mode
        self.workers = Workers.current()
        self.reporter = reporter if self.workers.rank == 0 else None
        self.precision = Precision(config.train.precision, self.workers.device)
        self.strategy = build_strategy(config.strategy, self.workers, self.precision)
        stages = num_stages(config.strategy, self.workers.size)
        self.micro_batch_size, _ = check_batch_split(config.train, self.strategy.data.size, stages)
        self.largest = 0
        """Tokens or samples in the largest global batch so far."""
        self.root = Path(checkpoint_folder) if checkpoint_folder is not None else None
        self.started_from = _starting_point(self.root, self.workers, self.reporter, resume=resume)

        seed_all(config.seed)  # alike on all workers, which build the same weights
        self.task = build_task(config, self.started_from)
        check_enough(config.train, len(self.task.train_samples))
        if config.train.compile:
            self.task.model.compile()
        self.strategy.spread(self.task)
        self.optimizer = build_optimizer(self.strategy.parameters.values(), config.train)

        seed_all(config.seed, self.strategy.stream)
        self.progress = Progress()
        if self.started_from is not None:
            reached = load_checkpoint(self.started_from, self.optimizer, self.strategy)
            self.progress = replace(reached, epochs=reached.samples / len(self.task.train_samples))
        self.first_step = self.progress.step
        self.order = SampleOrder(len(self.task.train_samples), config.seed)
        self.micro_batch_size = self._micro_batch_size()
        if largest_micro_batch is not None:
            self.micro_batch_size = largest_divisor(self.micro_batch_size, largest_micro_batch)
        self.progress = replace(self.progress, batch_factor=self._batch_factor())
        self.total_steps = count_steps(config.train, len(self.task.train_samples), self.global_batch_size)
        self.feed = self._feed()
        self.lr = 0.0
        self.communication = CommunicationMeter(self.workers, config.train.communication_every)
        self.flops = FlopMeter(self.workers, config.train.peak_tflops or peak_tflops(self.workers.device))
        self.window = Window(self.workers)
        self.reported_at = self.progress.step

    def close(self) -> None:
        """Ends processes that read ahead, and puts back what the next training shares."""
        self.feed = iter(())
        self.task.close()
        if self.config.train.compile:
            torch.compiler.reset()

    def repeat_report(self) -> Stop:
        """Reports the checkpoint that it starts from: the process may have died between saving and reporting. Returns
        whether to stop."""
        if self.started_from is None:
            return Stop.NO
        metrics = read_metrics(self.started_from)
        done = self.progress.step >= self.total_steps
        if done and metrics is None:  # it was stopped between two evaluations, and is now shortened to there
            metrics, _ = self._evaluate()
        stop = Stop.NO if metrics is None else self._report(metrics, str(self.started_from), done=done)
        self.window = Window(self.workers)
        return stop

    def step(self) -> None:
        """One optimizer step, on one global batch."""
        samples, train = self.task.train_samples, self.config.train
        self.lr = learning_rate(train, self.progress.step, self.total_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        indices = self.order.take(self.progress.samples, self.global_batch_size)
        size, units = samples.size(indices), samples.units(indices)
        with self.communication.watching(self.progress.step), self.flops.counting(self.strategy, size):
            loss = self._backward(size, units)
            self._update()
        if self.strategy.speaks:
            self.window.loss += loss
        self.window.units += units
        self.window.size += size
        consumed = self.progress.samples + len(indices)
        self.progress = replace(
            self.progress,
            step=self.progress.step + 1,
            epochs=consumed / len(samples),
            samples=consumed,
            tokens=(self.progress.tokens or 0) + size if self.task.unit == "tokens" else None,
        )

    def _feed(self) -> Iterator[list[Batch]]:
        """Micro batches of the steps to come."""
        size = self.global_batch_size
        first, steps = self.progress.samples, self.total_steps - self.progress.step
        return feed(
            self.task.train_samples,
            SampleOrder(len(self.task.train_samples), self.config.seed),
            self.strategy.data.share,
            range(first, first + steps * size, size),
            self.micro_batch_size,
            self.config.data.loader,
            self.workers.device,
            self.config.seed,
        )

    @property
    def global_batch_size(self) -> int:
        """Samples of a step."""
        return self.config.train.global_batch_size * self.progress.batch_factor

    def _batch_factor(self) -> int:
        """How many times the configured global batch a step takes: as before, or as the communication asks for."""
        train, samples = self.config.train, self.task.train_samples
        if train.max_global_batch_size is None:
            return 1
        most = min(train.max_global_batch_size, len(samples)) // train.global_batch_size
        if self.started_from is not None:
            return min(self.progress.batch_factor, most)
        assert isinstance(self.config.strategy, DDP)
        share = self.strategy.data.share(self.order.take(0, train.global_batch_size))
        micro_batches = [samples.batch(each) for each in in_batches(share, self.micro_batch_size)]
        factor, text = choose_batch_factor(train, self.config.strategy, self.strategy, micro_batches, most)
        if self.reporter is not None:
            self.reporter.note(text)
        return factor

    def _micro_batch_size(self) -> int:
        """As configured, or what is known to fit."""
        train, share = self.config.train, self.config.train.global_batch_size // self.strategy.data.size
        if train.micro_batch_size == "auto":
            return find_micro_batch_size(self.config, self.strategy, share)
        if self.workers.device.type != "cuda":  # which alone says that it has run out of memory
            return self.micro_batch_size
        known = self.workers.from_first(recall(self.config, self.strategy))
        if known is None or known >= self.micro_batch_size:
            return self.micro_batch_size
        return largest_divisor(self.micro_batch_size, known)

    def _backward(self, size: int, units: int) -> torch.Tensor:
        """Gradients of the mean loss over the units of a global batch, however they are spread over workers and
        micro batches; returns this worker's part of the summed loss.

        Args:
            size: Of the global batch.
            units: In it.
        """
        device, strategy = self.workers.device, self.strategy
        # The optimizer has no moments before the first step.
        strategy.careful = size > self.largest or self.progress.step < self.first_step + 2
        self.largest = max(self.largest, size)
        micro_batches = cut(next(self.feed), self.micro_batch_size)
        while True:
            batches = (on_device(each, device) for each in micro_batches)
            try:
                # Gradients are averaged over those who have samples of their own, hence their number.
                return strategy.backward(batches, len(micro_batches), scale=strategy.data.size / units)
            except torch.OutOfMemoryError as error:
                self._halve(max(map(rows, micro_batches)), error)
            strategy.forget()  # not before the error, which holds on to the tensors of its frames, is gone
            if device.type == "cuda":
                torch.cuda.empty_cache()
            micro_batches = cut(micro_batches, self.micro_batch_size)

    def _halve(self, size: int, error: torch.OutOfMemoryError) -> None:
        """After a micro batch did not fit; other workers need not know, whose mathematics does not change."""
        half = math.ceil(size / 2)
        if self.workers.device.type == "cuda" or self.config.train.micro_batch_size == "auto":
            remember(self.config, self.strategy, half)  # another attempt begins with it, if this one cannot go on
        if size == 1:
            raise torch.OutOfMemoryError(
                f"train.micro_batch_size=1 does not fit ({error}); use a shorter data.sequence_length, "
                "model.gradient_checkpointing=true or strategy=fsdp"
            ) from error
        if not self.strategy.may_repeat:
            raise MicroBatchHalved(size, half) from error
        self.micro_batch_size = half
        self.window.halvings += 1
        text = f"out of memory: micro batches have {half} samples from now on, instead of {size}"
        _log.warning("worker %d: %s", self.workers.rank, text)
        if self.reporter is not None:
            self.reporter.note(text)

    def _update(self) -> None:
        """Moves the weights; with fp16, a step whose gradients have overflowed is skipped and the scale lowered."""
        scaler, max_grad_norm = self.precision.scaler, self.config.train.max_grad_norm
        if max_grad_norm is not None:
            scaler.unscale_(self.optimizer)
            self.strategy.clip(max_grad_norm)
        scaler.step(self.optimizer)
        scaler.update()
        self.strategy.zero_grad()

    def boundary(self) -> _Boundary | None:
        """What is due after the steps done; None if nothing is."""
        step, train = self.progress.step, self.config.train
        done = step == self.total_steps
        evaluates = done or step % train.eval_every == 0
        saves = done or step % (self.config.checkpoint.every or train.eval_every) == 0
        due = evaluates or saves or step % train.log_every == 0
        return _Boundary(evaluates, saves, done) if due else None

    def stopped_between(self) -> _Boundary | None:
        """A boundary where none is due, if the training is to stop. What is decided on a report comes within
        milliseconds of it: so the workers ask soon after it, then ever less often."""
        steps = self.progress.step - self.reported_at
        is_power_of_two = steps & (steps - 1) == 0
        if not is_power_of_two or self._stop() is Stop.NO:
            return None
        return _Boundary(evaluates=False, saves=False, done=False)

    def settle(self, boundary: _Boundary) -> bool:
        """Records, evaluates, saves and reports what is due; returns whether to stop."""
        metrics, seconds, votes = self.window.close(
            self.task, _stop_vote(self.reporter), self.communication, self.flops, apart=boundary.evaluates
        )
        stop = Stop(int(votes))
        self.progress = replace(self.progress, seconds=self.progress.seconds + seconds)
        if stop is Stop.DISCARD:
            return True
        if HALVINGS in metrics:  # one worker that takes longer is waited for by all: they may as well be alike
            self.micro_batch_size = self.workers.from_first(min(self.workers.gather(self.micro_batch_size), default=0))
        metrics["train/lr"] = self.lr
        metrics["train/epoch"] = self.progress.epochs
        if self.config.train.max_communication_share is not None:
            metrics["train/global_batch_size"] = float(self.global_batch_size)
        metrics["train/num_workers"] = float(self.workers.size)
        if boundary.evaluates:
            evaluation, stop_now = self._evaluate()
            if stop_now is Stop.DISCARD:
                return True
            metrics |= evaluation
            stop = max(stop, stop_now)
            _check_metric(self.metric, metrics)
        checkpoint = None
        saves = boundary.saves or stop is Stop.SAVE
        if saves:
            checkpoint = self._save(metrics if boundary.evaluates else None, done=boundary.done)
        if boundary.evaluates:
            stop = max(stop, self._report(metrics, checkpoint, done=boundary.done))
            if stop is Stop.SAVE and not saves:
                self._save(metrics, done=boundary.done)
        elif self.reporter is not None:
            self.reporter.log(self.progress, metrics)
        self.window = Window(self.workers)
        return stop is not Stop.NO

    def _report(self, metrics: dict[str, float], checkpoint: str | None, *, done: bool) -> Stop:
        """Reports an evaluation; returns whether to stop, since a reporter may wait for what is decided on it."""
        if self.reporter is not None:
            self.reporter.report(self.progress, metrics, checkpoint, done)
        self.reported_at = self.progress.step
        return self._stop()

    def _stop(self) -> Stop:
        """Whether to stop, alike on all workers."""
        (stop,) = self.workers.sum([_stop_vote(self.reporter)])
        return Stop(int(stop))

    def _save(self, metrics: dict[str, float] | None, *, done: bool) -> str | None:
        """The folder of a new checkpoint, on rank 0 and if it is to be kept."""
        if self.root is None:
            return None
        path = save_checkpoint(self.root, self.config, self.strategy, self.optimizer, self.progress, metrics)
        if self.workers.rank != 0:
            return None
        remove_superseded(self.root, self.config.checkpoint.keep, self.metric, self.mode, finished=done)
        return str(path) if path.exists() else None

    def _evaluate(self) -> tuple[dict[str, float], Stop]:
        """``eval/*`` over the held-out samples, each counted once, and whether to stop."""
        samples = self.task.eval_samples
        scores = self.strategy.scores(samples, self.micro_batch_size)
        *totals, stop = self.workers.sum([*scores.tolist(), _stop_vote(self.reporter)])
        return self.task.metrics(totals, samples.units(range(len(samples)))), Stop(int(stop))


def _starting_point(root: Path | None, workers: Workers, reporter: Reporter | None, *, resume: bool) -> Path | None:
    """The checkpoint that all workers go on from: the one that rank 0 sees."""
    if root is None:
        return None
    newest = None
    if workers.rank == 0:
        remove_unfinished(root)
        newest, damages = newest_intact(root)
        if reporter is not None:
            for each in damages:
                reporter.note(each)
    newest = workers.from_first(newest)
    if newest is not None and not resume:
        raise ValueError(
            f"checkpoint_folder={root} holds checkpoints of an earlier training; "
            "go on from them with resume=True, or give an empty folder"
        )
    return newest


def _stop_vote(reporter: Reporter | None) -> float:
    """Rank 0's word; the others add nothing to it."""
    return float(reporter.should_stop() if reporter is not None else Stop.NO)


def _check_metric(metric: str, metrics: dict[str, float]) -> None:
    if metric not in metrics:
        raise ValueError(f"search.metric={metric} is not reported; use one of {sorted(metrics)}")
