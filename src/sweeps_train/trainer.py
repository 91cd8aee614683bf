"""A training in progress: everything that the loop's steps work on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from sweeps_train.batch_scaling import scale_global_batch
from sweeps_train.checkpoint import load_checkpoint, read_metrics, remove_superseded
from sweeps_train.communication import CommunicationMeter
from sweeps_train.config import TrainingConfig, check_batch_split
from sweeps_train.config.strategy import num_stages
from sweeps_train.corruption_check import CorruptionCheck
from sweeps_train.data.agreement import check_same_samples
from sweeps_train.data.global_batches import GlobalBatches
from sweeps_train.distributed import Workers
from sweeps_train.divergence import DivergenceGuard
from sweeps_train.flops import FlopMeter
from sweeps_train.measurement import Measurement
from sweeps_train.micro_batch import choose_micro_batch_size
from sweeps_train.models.float8 import check_float8, convert_to_float8
from sweeps_train.optimizer import build_optimizer, learning_rate, named_in_errors
from sweeps_train.out_of_memory import OutOfMemoryHandler
from sweeps_train.peak_performance import peak_of
from sweeps_train.pending_reports import Evaluator, PendingReports
from sweeps_train.precision import Precision
from sweeps_train.progress import Progress, check_enough_samples, count_steps
from sweeps_train.random_state import seed_all
from sweeps_train.reporter import Reporter, SilentReporter, Stop
from sweeps_train.resumption import find_resumption
from sweeps_train.save_schedule import SaveSchedule
from sweeps_train.saver import SMALL, CheckpointSaver
from sweeps_train.stop_schedule import StopSchedule
from sweeps_train.strategies import build_strategy
from sweeps_train.strategies.layers import compile_layers
from sweeps_train.system import begin_measurement
from sweeps_train.tasks import build_task
from sweeps_train.time_spent import TimeSpent
from sweeps_train.train_metrics import COMMUNICATION, DATA_WAIT, HALVINGS, TrainMetrics


@dataclass(frozen=True)
class DueActions:
    """Actions that follow the present step besides logging; the same on all workers, which communicate in them."""

    evaluate: bool
    save: bool


class Trainer:
    """Model, optimizer, data and measurements of one training. All workers call the same methods in the same order."""

    def __init__(
        self,
        config: TrainingConfig,
        reporter: Reporter | None,
        checkpoint_folder: str | None,
        metric: str,
        mode: str,
        *,
        resume: bool,
        largest_micro_batch: int | None,
        on_prepared: Callable[[], object],
        evaluator: Evaluator | None = None,
        failures: int,
    ):
        """Build everything, from the beginning or from a checkpoint; ``train`` documents the arguments."""
        self.config, self.metric, self.mode = config, metric, mode
        began = time.perf_counter()
        self.workers = Workers.current()
        begin_measurement(self.workers.device)
        self.reporter = reporter if reporter is not None and self.workers.rank == 0 else SilentReporter()
        self.precision = Precision(config.train.precision, self.workers.device)
        self.strategy = build_strategy(config.strategy, self.workers, self.precision)
        stages = num_stages(config.strategy, self.workers.size)
        micro_batch_size, _ = check_batch_split(config.train, self.strategy.data_parallel.size, stages)
        self.checkpoint_folder = Path(checkpoint_folder) if checkpoint_folder is not None else None
        found = find_resumption(self.checkpoint_folder, self.workers, self.reporter.note, resume=resume)
        self.resumed_from, self._holder, state = found.checkpoint, found.holder, found.state
        # Workers that do not evaluate save a checkpoint for it.
        self.evaluates, self.pending = evaluator is None, self._pending_reports(evaluator)

        seed_all(config.seed)  # alike on all workers, which build the same weights
        self.task = build_task(config, state)
        on_prepared()
        self.workers.meet()  # another node may still download or tokenize
        check_same_samples(
            self.workers,
            self.task.train_samples,
            self.task.eval_samples,
            contents=config.data.kind != "custom",  # a user's own may draw random numbers whenever it is read
        )
        num_samples = len(self.task.train_samples)
        check_enough_samples(config.train, num_samples)
        self._convert_model()
        trained = sum(each.numel() * each.element_size() for each in self.task.model.parameters() if each.requires_grad)
        self.strategy.parallelize(self.task)
        self.optimizer = build_optimizer(self.strategy.parameters.values(), config.train)

        seed_all(config.seed, self.strategy.capabilities.random_stream)
        self.progress = self._load_state(state)
        if config.train.cuda_graphs:
            self.strategy.capture_passes(self.reporter.note)
        self.batches = GlobalBatches(self.task.train_samples, config, self.workers, self.strategy.data_parallel)
        micro_batch_size = choose_micro_batch_size(config, self.strategy, micro_batch_size, largest_micro_batch)
        previous_factor = self.progress.batch_factor if self.resumed_from is not None else None
        factor, note = scale_global_batch(config, self.strategy, self.batches.order, micro_batch_size, previous_factor)
        if note is not None:
            self.reporter.note(note)
        self.progress = replace(self.progress, batch_factor=factor)
        self.global_batch_size = config.train.global_batch_size * factor
        self.total_steps = count_steps(config.train, num_samples, self.global_batch_size)

        self._read(micro_batch_size)
        self._saver = self._build_saver(is_small=trained <= SMALL)
        self._schedule = SaveSchedule(config.checkpoint, config.train.eval_every, failures, self.progress.step)
        self.memory = OutOfMemoryHandler(config, self.strategy, micro_batch_size, self.reporter.note)
        self._corruption = CorruptionCheck(self.strategy, config.train.corruption_check_every, config.seed)
        self.communication = CommunicationMeter(self.workers, config.train.communication_every, self.reporter.note)
        self.flops = FlopMeter(config.train.peak_tflops or self._peak(), self.reporter.note)
        self.measured = TrainMetrics(self.workers, self.reporter.note)
        self.divergence = DivergenceGuard(config.train, self.reporter.note)
        self._stops, self._measured_at = StopSchedule(self.progress.step), self.progress.step
        self.spent = TimeSpent(setup=time.perf_counter() - began)

    def _convert_model(self) -> None:
        if self.config.train.precision == "fp8":
            check_float8(self.workers.device)
            convert_to_float8(self.task.model)
        if self.config.train.compile:
            compile_layers(self.task.model)

    def _load_state(self, state: Path | None) -> Progress:
        """Load model and optimizer from a checkpoint, if there is one, and return the position there."""
        if state is None:
            return Progress()
        reached = load_checkpoint(state, self.optimizer, self.strategy)
        return replace(reached, epochs=reached.samples / len(self.task.train_samples))

    def _pending_reports(self, evaluator: Evaluator | None) -> PendingReports | None:
        if evaluator is None or self.workers.rank != 0:
            return None
        if self.checkpoint_folder is None:
            raise ValueError("checkpoint_folder: an evaluator reads checkpoints; give a folder for them")
        return PendingReports(
            evaluator,
            self.reporter,
            self.checkpoint_folder,
            self.config.checkpoint,
            self.check_metric,
            (self.metric, self.mode),
        )

    def _peak(self) -> float | None:
        """Peak performance of the device in 10^12 operations per second, if that is known."""
        is_float8 = self.config.train.precision == "fp8"
        return Measurement("the peak performance of the device", self.reporter.note).value(
            lambda: peak_of(self.workers.device, self.precision.type, float8=is_float8), None
        )

    def _read(self, micro_batch_size: int) -> None:
        """Read the batches of all remaining steps."""
        remaining = self.total_steps - self.progress.step
        self.batches.begin(self.progress.samples, remaining, self.global_batch_size, micro_batch_size)

    def _build_saver(self, *, is_small: bool) -> CheckpointSaver | None:
        if self.checkpoint_folder is None:
            return None
        return CheckpointSaver(
            self.checkpoint_folder,
            self.config,
            self.strategy,
            self.optimizer,
            supersede=self._remove_superseded,
            note=self.reporter.note,
            connection=self._holder,
            is_small=is_small,
        )

    def finish(self) -> None:
        """End a training that has not failed: wait until its last checkpoint is on the storage."""
        if self._saver is not None:
            self._saver.finish()

    def close(self) -> None:
        """End the processes that read ahead, and restore what the next training in this process shares."""
        if self._saver is not None:
            self._saver.close()
            self._saver = None  # it knows this trainer, which would keep the model in memory
        self.batches.close()
        self.strategy.close()
        self.task.close()
        if self.pending is not None:
            self.pending.close()
        if self.config.train.compile:
            torch.compiler.reset()

    @property
    def is_done(self) -> bool:
        """Whether all steps have been made."""
        return self.progress.step >= self.total_steps

    def repeat_last_report(self) -> Stop:
        """Report the checkpoint from which this training continues, since the process may have died between saving and
        reporting it."""
        if self.resumed_from is None:
            return Stop.NO
        if self.pending is not None:
            self.pending.resume(self._evaluates_at, lambda step: step >= self.total_steps)
        metrics = read_metrics(self.resumed_from)
        if metrics is None and self.is_done and self.evaluates:
            metrics, _ = self.evaluate()  # stopped between two evaluations, and now shortened to that step
        return Stop.NO if metrics is None else self._report(metrics, str(self.resumed_from))

    def train_step(self) -> None:
        """Make one optimizer step, on one global batch."""
        samples, progress = self.task.train_samples, self.progress
        if self._corruption.is_due(progress.step):
            indices = self.batches.order.take(progress.samples, self.memory.micro_batch_size)
            self._corruption.run(progress.step, lambda: samples.batch(indices))
        self.measured.start()
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate(progress.step)
        batch = self.batches.next(progress.samples)
        with self.communication.watching(progress.step), self.flops.counting(self.strategy, batch.size):
            # The strategy averages gradients over the replicas; the loss is the mean over the units of all of them.
            scale = self.strategy.data_parallel.size / batch.units
            loss = self.memory.backward(batch.micro_batches, batch.size, scale)
            is_kept = self._update_weights()
        reports_loss = is_kept and self.strategy.capabilities.is_reporting_rank
        units = batch.units if is_kept else 0
        self.measured.add_step(loss if reports_loss else None, units, batch.size, batch.waited_s)
        consumed = progress.samples + batch.num_samples
        self.progress = replace(
            progress,
            step=progress.step + 1,
            epochs=consumed / len(samples),
            samples=consumed,
            tokens=(progress.tokens or 0) + batch.size if self.task.unit == "tokens" else None,
        )

    def _learning_rate(self, step: int) -> float:
        return learning_rate(self.config.train, step, self.total_steps)

    def _update_weights(self) -> bool:
        """Clip gradients and step the optimizer. With fp16, a step whose gradients overflow is skipped.

        Returns:
            Whether the step was made; not if its gradients are not finite and the config says to leave it out.
        """
        scaler, max_grad_norm = self.precision.scaler, self.config.train.max_grad_norm
        if max_grad_norm is not None:
            scaler.unscale_(self.optimizer)
            norm = self.strategy.clip_grad_norm(max_grad_norm)
            if not self.divergence.keeps(norm, is_scaled=scaler.is_enabled()):
                self.strategy.zero_grad()
                return False
        with named_in_errors(self.config.train, self.config.strategy.kind):
            scaler.step(self.optimizer)
        scaler.update()
        self.strategy.zero_grad()
        return True

    def due_actions(self) -> DueActions | None:
        """Actions that follow the present step; None if not even metrics are logged."""
        step, train = self.progress.step, self.config.train
        evaluate = self._evaluates_at(step)
        epochs_before = (self.progress.samples - self.global_batch_size) / len(self.task.train_samples)
        save = self.is_done or self._schedule.is_due(self.progress, epochs_before)
        save = save or (evaluate and not self.evaluates)
        if evaluate or save or step % train.log_every == 0:
            return DueActions(evaluate, save)
        stops = self._stops.is_due(step) and self._stop() is not Stop.NO
        return DueActions(evaluate=False, save=False) if stops else None

    def _evaluates_at(self, step: int) -> bool:
        return step >= self.total_steps or step % self.config.train.eval_every == 0

    def train_metrics(self, *, per_worker: bool) -> tuple[dict[str, float], Stop]:
        """Metrics of the steps since the last call, and whether to stop.

        Args:
            per_worker: Include each worker's use of its machine.
        """
        saver = self._saver
        votes = [self._stop_vote(), *([] if saver is None else saver.votes)]
        metrics, seconds, (stop, *decided) = self.measured.take(
            self.task, votes, self.memory.take_halvings(), self.communication, self.flops, per_worker
        )
        if saver is not None:
            saver.decide(*decided)
        step_s = seconds / (self.progress.step - self._measured_at)
        self._measured_at = self.progress.step
        self._stops.asked(self.progress.step, step_s=step_s)
        if self._schedule.needs_times:
            self._observe_times(step_s)
        if HALVINGS in metrics:
            self.memory.equalize()
        self.progress = replace(self.progress, seconds=self.progress.seconds + seconds)
        self.spent.add_steps(seconds, metrics[DATA_WAIT], metrics.get(COMMUNICATION))
        change = None if self.is_done else self.batches.tune(seconds, metrics[DATA_WAIT])
        if change is not None:
            self.reporter.note(change)
            self._read(self.memory.micro_batch_size)
        metrics["train/lr"] = self._learning_rate(self.progress.step - 1)
        metrics["train/epoch"] = self.progress.epochs
        if self.config.train.max_communication_share is not None:
            metrics["train/global_batch_size"] = float(self.global_batch_size)
        metrics["train/num_workers"] = float(self.workers.size)
        return metrics | self.divergence.metrics(self.progress.step), Stop(int(stop))

    def continue_at(self, samples: int) -> None:
        """Continue at another position in the order of the data than that of the checkpoint."""
        self.progress = replace(self.progress, samples=samples, epochs=samples / len(self.task.train_samples))
        self._read(self.memory.micro_batch_size)

    def end_diverged(self, times_restored: int) -> DueActions:
        """End a training that has diverged, with the present step.

        Args:
            times_restored: Number of times that it has gone back to a checkpoint.

        Returns:
            A last evaluation, without a checkpoint of these weights unless others evaluate that.

        Raises:
            Diverged: It is to go back to its last checkpoint instead.
        """
        self.divergence.tell_end(self.progress.step, self.progress.samples, times_restored)
        self.total_steps = self.progress.step
        return DueActions(evaluate=True, save=not self.evaluates)

    def _observe_times(self, step_s: float) -> None:
        """Tell the schedule of checkpoints what steps and saves take, the same on all workers."""
        own = [0.0, 0.0] if self._saver is None else [self._saver.blocked_s, self._saver.write_s]
        self._schedule.observe(self.progress.seconds, step_s, *self.workers.max(own))

    def evaluate(self) -> tuple[dict[str, float], Stop]:
        """``eval/*`` over the held-out samples, and whether to stop."""
        samples = self.task.eval_samples
        with self.spent.on("evaluation"):
            scores = self.memory.evaluate(samples)
            summed = self.workers.sum_tensor(torch.cat([scores.flatten(), scores.new_tensor([self._stop_vote()])]))
            total = summed[:-1].view_as(scores).cpu()
        return self.task.metrics(total, samples.units(range(len(samples)))), Stop(int(summed[-1]))

    def check_metric(self, metrics: dict[str, float]) -> None:
        """Raise ``ValueError`` if the metric that decides is not among those of an evaluation."""
        if self.metric not in metrics:
            raise ValueError(f"search.metric={self.metric} is not reported; use one of {sorted(metrics)}")

    def save(self, metrics: dict[str, float] | None, *, stops: bool = False) -> str | None:
        """Save a checkpoint, and remove those that it supersedes.

        It is complete later, and then announced to the reporter, unless somebody waits for it.

        Args:
            metrics: Metrics of an evaluation at this step, if there was one.
            stops: Whether the training stops here.

        Returns:
            The checkpoint's folder, on rank 0 and if it is complete and kept.
        """
        if self._saver is None:
            return None
        progress = self.progress
        self._schedule.saved(progress.step)

        def announce(checkpoint: str) -> None:
            self.reporter.checkpoint(progress, metrics or {}, checkpoint)

        with self.spent.on("checkpoint"):
            return self._saver.save(
                progress,
                metrics,
                finished=self.is_done,
                waits=stops or self.is_done or self.reporter.waits_for_decision or not self.evaluates,
                announce=None if metrics is None else announce,
            )

    def _remove_superseded(self, finished: bool) -> None:
        assert self.checkpoint_folder is not None
        if self.evaluates:  # otherwise when an evaluation has ended
            keep = self.config.checkpoint.keep
            remove_superseded(self.checkpoint_folder, keep, self.metric, self.mode, finished=finished)

    def log(self, metrics: dict[str, float]) -> None:
        """Log training metrics."""
        if self.pending is not None:
            self.pending.deliver()
        self.reporter.log(self.progress, metrics)

    def report(self, metrics: dict[str, float], checkpoint: str | None) -> Stop:
        """Report an evaluation, or begin it elsewhere, and return whether to stop: a reporter may wait for a decision
        about it."""
        if self.evaluates:
            return self._report(metrics, checkpoint)
        if self.pending is not None and checkpoint is not None:
            self.pending.deliver()
            self.pending.add(self.progress, metrics | self.spent.metrics(), Path(checkpoint), done=self.is_done)
        self._stops.reported(self.progress.step)
        return self._stop()

    def _report(self, metrics: dict[str, float], checkpoint: str | None) -> Stop:
        self.reporter.report(self.progress, metrics | self.spent.metrics(), checkpoint, self.is_done)
        if self._saver is not None:
            self._saver.reported()
        self._stops.reported(self.progress.step)
        return self._stop()

    def deliver_reports(self) -> None:
        """Wait for the evaluations that are computed elsewhere."""
        if self.pending is not None:
            self.pending.deliver_all()

    def _stop(self) -> Stop:
        """Whether to stop, the same on all workers."""
        (stop,) = self.workers.sum([self._stop_vote()])
        return Stop(int(stop))

    def _stop_vote(self) -> float:
        """Rank 0's answer; other ranks add nothing to it."""
        return float(self.reporter.should_stop())
