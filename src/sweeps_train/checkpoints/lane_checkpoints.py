"""The checkpoints of one training: when they are due, how they are saved, and which are removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from sweeps_train.checkpoints.kept_checkpoints import remove_superseded
from sweeps_train.checkpoints.save_schedule import SaveSchedule
from sweeps_train.checkpoints.saver import SMALL, CheckpointSaver
from sweeps_train.reports.progress import Progress
from sweeps_train.reports.reporter import Reporter
from sweeps_train.snapshots.connection import HolderConnection
from sweeps_train.strategies.strategy import Strategy
from sweeps_train.training_request import TrainingRequest
from sweeps_train.workers.distributed import Workers


class LaneCheckpoints:
    """Saves one training's checkpoints, if it has a folder for them. All workers call the same methods."""

    def __init__(
        self,
        request: TrainingRequest,
        workers: Workers,
        reporter: Reporter,
        strategy: Strategy,
        optimizer: torch.optim.Optimizer,
        connection: HolderConnection | None,
        *,
        trained_bytes: int,
        step: int,
    ):
        """
        Args:
            request: The training.
            workers: All workers.
            reporter: Notified of checkpoints that are completed after the report of their step.
            strategy: Provides the model to save.
            optimizer: Provides the state to save.
            connection: Connection to a holder that an earlier attempt has left on rank 0's node.
            trained_bytes: Size of the trained weights.
            step: Step from which the training continues.
        """
        config = request.config
        self._request, self._workers, self._reporter = request, workers, reporter
        self._root = Path(request.checkpoint_folder) if request.checkpoint_folder is not None else None
        self._schedule = SaveSchedule(config.checkpoint, config.train.eval_every, request.failures, step)
        self._saver = (
            None
            if self._root is None
            else CheckpointSaver(
                self._root,
                config,
                strategy,
                optimizer,
                supersede=self._remove_superseded,
                note=reporter.note,
                connection=connection,
                is_small=trained_bytes <= SMALL,
            )
        )

    def is_due(self, now: Progress, epochs_before: float) -> bool:
        """Whether a checkpoint is due before the training ends.

        Args:
            now: The current position.
            epochs_before: Epochs before the last step.
        """
        return self._schedule.is_due(now, epochs_before)

    @property
    def votes(self) -> list[float]:
        """This worker's numbers for ``decide``, which are summed over all workers."""
        return [] if self._saver is None else self._saver.votes

    def decide(self, sums: Sequence[float]) -> None:
        """Decide from the sums of all workers' ``votes`` how the next checkpoint is saved."""
        if self._saver is not None:
            self._saver.decide(*sums)

    def observe_times(self, progress: Progress, step_s: float) -> None:
        """Update the schedule with the durations of steps and saves, equal on all workers, if it depends on them."""
        if self._schedule.needs_times:
            own = [0.0, 0.0] if self._saver is None else [self._saver.blocked_s, self._saver.write_s]
            self._schedule.observe(progress.seconds, step_s, *self._workers.max(own))

    def save(self, progress: Progress, metrics: dict[str, float] | None, *, finished: bool, stops: bool) -> str | None:
        """Save a checkpoint, and remove superseded ones.

        The checkpoint may be written in the background; the reporter is told when it is complete, unless the caller
        waits for that.

        Args:
            progress: Position of the training.
            metrics: Metrics of an evaluation at this step, if there was one.
            finished: Whether the training has reached its end.
            stops: Whether it stops here.

        Returns:
            The checkpoint's folder, on rank 0 and if it is complete and kept.
        """
        if self._saver is None:
            return None
        self._schedule.saved(progress.step)
        announce: Callable[[str], None] | None = None
        if metrics is not None:
            reported = metrics
            announce = lambda checkpoint: self._reporter.checkpoint(progress, reported, checkpoint)  # noqa: E731
        evaluates = self._request.evaluator is None
        waits = stops or finished or self._reporter.waits_for_decision or not evaluates
        return self._saver.save(progress, metrics, finished=finished, waits=waits, announce=announce)

    def _remove_superseded(self, finished: bool) -> None:
        assert self._root is not None
        if self._request.evaluator is None:  # otherwise when an evaluation has ended
            keep = self._request.config.checkpoint.keep
            remove_superseded(self._root, keep, self._request.objectives, finished=finished)

    def reported(self) -> None:
        """Record that the last saved step, if any, has been reported."""
        if self._saver is not None:
            self._saver.reported()

    def finish(self) -> None:
        """Wait until the last checkpoint of a successful training is on the storage."""
        if self._saver is not None:
            self._saver.finish()

    def close(self) -> None:
        """Leave unfinished writes to the attempt that continues, unless the training has ended."""
        if self._saver is not None:
            self._saver.close()
            self._saver = None  # it knows the strategy, which would keep the model in memory
