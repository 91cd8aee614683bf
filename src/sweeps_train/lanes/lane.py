"""One training of a group: its trainable parameters, optimizer, data, position and measurements."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from sweeps_train.checkpoints.checkpoint_metrics import read_metrics
from sweeps_train.checkpoints.resumption import find_resumption
from sweeps_train.checkpoints.saver import CheckpointSaver
from sweeps_train.checkpoints.training_state import load_state
from sweeps_train.config import check_batch_split
from sweeps_train.config.strategy import num_stages
from sweeps_train.data.agreement import check_same_samples
from sweeps_train.data.global_batches import GlobalBatch, GlobalBatches
from sweeps_train.devices.corruption_check import CorruptionCheck
from sweeps_train.lanes.group import Group
from sweeps_train.measures.time_spent import TimeSpent
from sweeps_train.measures.train_metrics import COMMUNICATION, DATA_WAIT, HALVINGS, TrainMetrics
from sweeps_train.memory.micro_batch_size import choose_micro_batch_size
from sweeps_train.memory.out_of_memory import OutOfMemoryHandler
from sweeps_train.models.float8 import check_float8, convert_to_float8
from sweeps_train.reports.pending_reports import PendingReports
from sweeps_train.reports.progress import Progress, check_enough_samples, count_steps
from sweeps_train.reports.reporter import Stop
from sweeps_train.steps.batch_scaling import scale_global_batch
from sweeps_train.steps.divergence import DivergenceGuard
from sweeps_train.steps.optimizer import build_optimizer, learning_rate, named_in_errors
from sweeps_train.steps.precision import Precision
from sweeps_train.steps.random_state import seed_all
from sweeps_train.steps.stop_schedule import StopSchedule
from sweeps_train.strategies.layers import compile_layers, forget_compiled
from sweeps_train.training_request import TrainingRequest
from sweeps_train.workers.exchange import Exchange


@dataclass(frozen=True)
class DueActions:
    """Actions due after the current step besides logging; the same on all workers, which communicate in them."""

    evaluate: bool
    save: bool


class Lane:
    """One training on the workers of a group. All workers call the same methods in the same order."""

    def __init__(self, request: TrainingRequest, group: Group):
        """Build model, data, optimizer and meters, from scratch or from a checkpoint."""
        began = time.perf_counter()
        config = request.config
        self.request, self.config, self._group, self.workers = request, config, group, group.workers
        self.reporter = request.reporter_on(self.workers.rank)
        self.precision = Precision(config.train.precision, self.workers.device)
        self.strategy = group.build_strategy(config, self.precision)
        stages = num_stages(config.strategy, self.workers.size)
        micro_batch_size, _ = check_batch_split(config.train, self.strategy.data_parallel.size, stages)
        found = find_resumption(request.root, self.workers, self.reporter.note, resume=request.resume)
        self.resumed_from = found.checkpoint
        with ExitStack() as undo:
            if found.holder is not None:
                undo.callback(found.holder.close)
            # If workers do not evaluate themselves, each evaluation needs a checkpoint.
            self.evaluates, self.pending = request.evaluator is None, self._pending_reports()
            if self.pending is not None:
                undo.callback(self.pending.close)

            seed_all(config.seed)  # equally on all workers, so that they build the same weights
            self.task = group.prepare(request, found.state)
            undo.callback(self.task.close)
            self._check_samples()
            self._convert_model(undo)
            trained = sum(
                each.numel() * each.element_size() for each in self.task.model.parameters() if each.requires_grad
            )
            undo.callback(self.strategy.close)
            self.strategy.parallelize(self.task)
            self.optimizer = build_optimizer(self.strategy.parameters.values(), config.train)

            self.strategy.random_numbers.seed(config.seed, self.strategy.capabilities.random_stream)
            self.progress = self._load_state(found.state)
            if config.train.cuda_graphs:
                self.strategy.capture_passes(self.reporter.note)
            self.batches = GlobalBatches(self.task.train_samples, config, self.workers, self.strategy.data_parallel)
            undo.callback(self.batches.close)
            micro_batch_size = choose_micro_batch_size(
                config, self.strategy, micro_batch_size, request.largest_micro_batch
            )
            self.global_batch_size = self._choose_global_batch_size(micro_batch_size)
            self.total_steps = self._count_steps()

            self._read(micro_batch_size)
            self.checkpoints = CheckpointSaver(
                request,
                self.reporter,
                self.strategy,
                self.optimizer,
                found.holder,
                trained_bytes=trained,
                step=self.progress.step,
            )
            undo.callback(self.checkpoints.close)
            self.memory = OutOfMemoryHandler(config, self.strategy, micro_batch_size, self.reporter.note)
            self._corruption = CorruptionCheck(self.strategy, config.train.corruption_check_every, config.seed)
            self.measured = TrainMetrics(self.workers, group.clock, group.communication, self.reporter.note)
            self.divergence = DivergenceGuard(config.train, self.reporter.note, self.strategy.parameters.values())
            self._stops, self._measured_at = StopSchedule(self.progress.step), self.progress.step
            self.spent = TimeSpent(setup_s=time.perf_counter() - began, clock=group.clock)
            self._undo = undo.pop_all()
            """Ends what this training has begun, and restores what it has changed in the process, last first."""

    def _check_samples(self) -> None:
        is_random = self.config.data.kind == "custom"  # a user's data set may draw random numbers at each read
        train, evaluation = self.task.train_samples, self.task.eval_samples
        check_same_samples(self.workers, train, evaluation, contents=not is_random)
        check_enough_samples(self.config.train, len(train))

    def _convert_model(self, undo: ExitStack) -> None:
        if self.config.train.precision == "fp8":
            check_float8(self.workers.device)
            convert_to_float8(self.task.model)
        if self.config.train.compile:
            undo.callback(torch.compiler.reset)
            undo.callback(forget_compiled, self.task.model)
            compile_layers(self.task.model)

    def _load_state(self, state: Path | None) -> Progress:
        """Load model and optimizer from a checkpoint, if there is one, and return the position there."""
        if state is None:
            return Progress()
        reached = load_state(state, self.optimizer, self.strategy)
        return replace(reached, epochs=reached.samples / len(self.task.train_samples))

    def _choose_global_batch_size(self, micro_batch_size: int) -> int:
        """Return the configured global batch size, or a multiple of it where communication would take too long."""
        previous = self.progress.batch_factor if self.resumed_from is not None else None
        order = self.batches.order
        factor, note = scale_global_batch(self.config, self.strategy, order, micro_batch_size, previous)
        if note is not None:
            self.reporter.note(note)
        self.progress = replace(self.progress, batch_factor=factor)
        return self.config.train.global_batch_size * factor

    def _count_steps(self) -> int:
        return count_steps(self.config.train, len(self.task.train_samples), self.global_batch_size, self.progress)

    def _pending_reports(self) -> PendingReports | None:
        request = self.request
        if request.evaluator is None or self.workers.rank != 0:
            return None
        if request.root is None:
            raise ValueError("checkpoint_folder: an evaluator reads checkpoints; give a folder for them")
        kept = self.config.checkpoint.keep
        return PendingReports(
            request.evaluator, self.reporter, request.root, kept, self.check_metric, request.objectives
        )

    def _read(self, micro_batch_size: int) -> None:
        """Read the batches of all remaining steps."""
        remaining = self.total_steps - self.progress.step
        self.batches.begin(self.progress.samples, remaining, self.global_batch_size, micro_batch_size)

    def finish(self) -> None:
        """End a successful training: wait until its last checkpoint is on the storage."""
        with self._group.clock.stopped():
            self.checkpoints.finish()

    def close(self) -> None:
        """End the processes that read ahead, and restore what this training changed in the process."""
        self._undo.close()

    @property
    def is_done(self) -> bool:
        """Whether all steps are done."""
        return self.progress.step >= self.total_steps

    def repeat_last_report(self) -> Exchange[Stop]:
        """Repeat the report of the checkpoint from which this training continues, since its process may have died
        between saving and reporting. A checkpoint that another training has reported is not reported."""
        if self.resumed_from is None:
            return Stop.NO
        metrics = read_metrics(self.resumed_from)
        if not metrics and self.is_done and self.evaluates:
            metrics, _ = self.evaluate()  # stopped between two evaluations, and now shortened to that step
        return (yield from self._report(metrics, str(self.resumed_from))) if metrics else Stop.NO

    def resume_evaluations(self) -> None:
        """Restart the evaluations on other nodes that were unfinished when an earlier attempt ended, or when this
        training went back to a checkpoint."""
        if self.pending is not None:
            self.pending.resume(self._evaluates_at, lambda step: step >= self.total_steps)
        self._meet_after_evaluations()

    def _meet_after_evaluations(self) -> None:
        """Let the other workers wait for rank 0, which may have waited for evaluations on other nodes for longer than a
        collective operation may take."""
        if not self.evaluates:
            self.workers.meet()

    def begin_step(self) -> GlobalBatch:
        """Read the batch of the next optimizer step, and set its learning rate."""
        samples, progress = self.task.train_samples, self.progress
        if self._corruption.is_due(progress.step):
            indices = self.batches.order.take(progress.samples, self.memory.micro_batch_size)
            self._corruption.run(progress.step, lambda: samples.batch(indices))
        self.measured.start()
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate(progress.step)
        return self.batches.next(progress.samples)

    def loss_scale(self, batch: GlobalBatch) -> float | torch.Tensor:
        """Return the factor of each micro batch's summed loss. The gradients of micro batches are added, and those of
        replicas averaged, whereas the loss is the mean over the units (counted tokens, or samples) of the global
        batch."""
        return self.strategy.data_parallel.size / batch.units

    def end_step(self, batch: GlobalBatch, loss: torch.Tensor) -> None:
        """Update the weights with the gradients of a batch, and count the step; ``loss`` is this worker's part of the
        batch's summed loss, a scalar."""
        is_kept = self._update_weights()
        progress = self.progress
        reports_loss = is_kept and self.strategy.capabilities.is_reporting_rank
        units = batch.units if is_kept else 0
        self.measured.add_step(loss if reports_loss else None, units, batch.size, batch.waited_s)
        consumed = progress.samples + batch.num_samples
        self.progress = replace(
            progress,
            step=progress.step + 1,
            epochs=consumed / len(self.task.train_samples),
            samples=consumed,
            tokens=(progress.tokens or 0) + batch.size if self.task.unit == "tokens" else None,
        )

    def _learning_rate(self, step: int) -> float:
        return learning_rate(self.config.train, step, self.total_steps)

    def _update_weights(self) -> bool:
        """Clip gradients and step the optimizer. With fp16, a step whose gradients overflow is skipped. Return whether
        the step was taken, which is false if gradients are not finite and the config says to skip such steps."""
        scaler, max_grad_norm = self.precision.scaler, self.config.train.max_grad_norm
        if max_grad_norm is not None:
            scaler.unscale_(self.optimizer)
            norm = self.strategy.clip_grad_norm(max_grad_norm)
            if not self.divergence.keeps(norm, scaler):
                self.strategy.zero_grad()
                return False
        with named_in_errors(self.config.train, self.config.strategy.kind):
            scaler.step(self.optimizer)
        scaler.update()
        self.strategy.zero_grad()
        return True

    def due_actions(self) -> Exchange[DueActions | None]:
        """Return the actions due after the current step; None if not even metrics are logged."""
        step, train = self.progress.step, self.config.train
        evaluate = self._evaluates_at(step)
        epochs_before = (self.progress.samples - self.global_batch_size) / len(self.task.train_samples)
        save = self.is_done or self.checkpoints.schedule.is_due(self.progress, epochs_before)
        save = save or (evaluate and not self.evaluates)
        if evaluate or save or step % train.log_every == 0:
            return DueActions(evaluate, save)
        stops = self._stops.is_due(step) and (yield from self._stop()) is not Stop.NO
        return DueActions(evaluate=False, save=False) if stops else None

    def _evaluates_at(self, step: int) -> bool:
        return step >= self.total_steps or step % self.config.train.eval_every == 0

    def train_metrics(self, *, per_worker: bool) -> Exchange[tuple[dict[str, float], Stop]]:
        """Return the metrics of the steps since the last call, and whether to stop; ``per_worker`` includes each
        worker's use of its machine."""
        lost_weights = self.divergence.weights_vote()
        votes = [self._stop_vote(), lost_weights, *self.checkpoints.votes]
        metrics, seconds, (stop, lost_weights, *decided) = yield from self.measured.take(
            self.task, votes, self.memory.take_halvings(), self._group.flops, per_worker
        )
        self.checkpoints.decide(decided)
        self._adapt_to_times(seconds, metrics)
        metrics["train/lr"] = self._learning_rate(self.progress.step - 1)
        metrics["train/epoch"] = self.progress.epochs
        if self.config.train.max_communication_share is not None:
            metrics["train/global_batch_size"] = float(self.global_batch_size)
        metrics["train/num_workers"] = float(self.workers.size)
        return metrics | self.divergence.metrics(self.progress.step, lost_weights), Stop(int(stop))

    def _adapt_to_times(self, seconds: float, metrics: dict[str, float]) -> None:
        """Adapt the intervals of stop checks and checkpoints, and the number of reading processes, to the times of the
        last steps."""
        step_s = seconds / (self.progress.step - self._measured_at)
        self._measured_at = self.progress.step
        self._stops.asked(self.progress.step, step_s=step_s)
        self.checkpoints.observe_times(self.progress, step_s)
        if HALVINGS in metrics:
            self.memory.equalize()
        self.progress = replace(self.progress, seconds=self.progress.seconds + seconds)
        self.spent.add_steps(seconds, metrics[DATA_WAIT], metrics.get(COMMUNICATION))
        change = None if self.is_done else self.batches.tune(seconds, metrics[DATA_WAIT])
        if change is not None:
            self.reporter.note(change)
            self._read(self.memory.micro_batch_size)

    def continue_at(self, samples: int) -> None:
        """Continue at a data position other than the checkpoint's."""
        left_out, epochs = samples - self.progress.samples, samples / len(self.task.train_samples)
        self.progress = replace(
            self.progress, samples=samples, epochs=epochs, left_out=self.progress.left_out + left_out
        )
        self._read(self.memory.micro_batch_size)

    def end_diverged(self, times_restored: int) -> DueActions:
        """End a diverged training at the current step, with a last evaluation; a checkpoint of these weights is saved
        only if other nodes evaluate it.

        Raises:
            Diverged: The training must return to its last checkpoint instead.
        """
        self.divergence.tell_end(self.progress.step, self.progress.samples, times_restored)
        self.total_steps = self.progress.step
        return DueActions(evaluate=True, save=not self.evaluates)

    def evaluate(self) -> tuple[dict[str, float], Stop]:
        """Compute ``eval/*`` over the held-out samples; return it and whether to stop."""
        samples = self.task.eval_samples
        with self.spent.on("evaluation"):
            scores = self.memory.evaluate(samples)
            summed = self.workers.sum_tensor(torch.cat([scores.flatten(), scores.new_tensor([self._stop_vote()])]))
            total = summed[:-1].view_as(scores).cpu()
        return self.task.metrics(total, samples.units(range(len(samples)))), Stop(int(summed[-1]))

    def check_metric(self, metrics: dict[str, float]) -> None:
        """Raise ``ValueError`` if an evaluation lacks the metric that the search compares."""
        metric = self.request.objectives[0].metric
        if metric not in metrics:
            raise ValueError(f"search.metric={metric} is not reported; use one of {sorted(metrics)}")

    def save(self, metrics: dict[str, float] | None, *, stops: bool = False) -> str | None:
        """Save a checkpoint of this step; see ``CheckpointSaver.save``."""
        with self.spent.on("checkpoint"):
            return self.checkpoints.save(self.progress, metrics, finished=self.is_done, stops=stops)

    def log(self, metrics: dict[str, float]) -> None:
        """Log training metrics."""
        if self.pending is not None:
            self.pending.deliver()
        self.reporter.log(self.progress, metrics)

    def report(self, metrics: dict[str, float], checkpoint: str | None) -> Exchange[Stop]:
        """Report an evaluation, or start it on another node; return whether to stop. May wait for a decision."""
        if self.evaluates:
            return (yield from self._report(metrics, checkpoint))
        if self.pending is not None and checkpoint is not None:
            self.pending.deliver()
            self.pending.add(self.progress, metrics | self.spent.metrics(), Path(checkpoint), done=self.is_done)
        self._meet_after_evaluations()
        self._stops.reported(self.progress.step)
        return (yield from self._stop())

    def _report(self, metrics: dict[str, float], checkpoint: str | None) -> Exchange[Stop]:
        with self._group.clock.stopped():  # it may wait for a decision
            self.reporter.report(self.progress, metrics | self.spent.metrics(), checkpoint, self.is_done)
        self.checkpoints.reported()
        self._stops.reported(self.progress.step)
        return (yield from self._stop())

    def deliver_reports(self) -> None:
        """Wait for the evaluations that run on other nodes."""
        if self.pending is not None:
            self.pending.deliver_all()

    def _stop(self) -> Exchange[Stop]:
        """Whether to stop; the same on all workers."""
        by_worker = yield [self._stop_vote()]
        return Stop(int(sum(vote for (vote,) in by_worker)))

    def _stop_vote(self) -> float:
        """Return rank 0's answer on whether to stop, as a summand; zero on other ranks."""
        return float(self.reporter.should_stop())
