"""Saves a training's checkpoints when they are due: from a snapshot in memory while the training continues, or directly
while it waits."""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import Future
from pathlib import Path

import torch

from sweeps_train.checkpoints.checkpoint import checkpoint_path, write_checkpoint
from sweeps_train.checkpoints.kept_checkpoints import remove_superseded
from sweeps_train.checkpoints.save_schedule import SaveSchedule
from sweeps_train.reports.progress import Progress
from sweeps_train.reports.reporter import Reporter
from sweeps_train.snapshots.connection import SHARED_MEMORY, HolderConnection
from sweeps_train.snapshots.snapshot import Snapshot
from sweeps_train.strategies.strategy import Strategy
from sweeps_train.training_request import TrainingRequest

SMALL = 2**20
"""Maximum bytes of trained weights for which checkpoints are first written without a snapshot: starting a process that
holds the snapshot, and agreeing on its files, would take longer than writing."""
HOLDER_S = 0.3
"""Maximum seconds for which small checkpoints may block training in total before a holder process is started; about the
cost of its start."""
HAND_OVER_WITHIN_S = 60.0
"""Maximum seconds for which a failed training waits for the parts of its last snapshot. It does not wait for workers
that have ended."""


class CheckpointSaver:
    """Saves the checkpoints of one training, if it has a folder for them, and removes superseded ones. All workers call
    the same methods in the same order. In the background, each worker hands its part to rank 0, which has the
    checkpoint written."""

    def __init__(
        self,
        request: TrainingRequest,
        reporter: Reporter,
        strategy: Strategy,
        optimizer: torch.optim.Optimizer,
        connection: HolderConnection | None,
        *,
        trained_bytes: int,
        step: int,
    ):
        """Save the checkpoints of a training that continues from a step. The reporter is notified of checkpoints that
        are completed after the report of their step. ``connection`` leads to a holder that an earlier attempt has left
        on rank 0's node."""
        self._request, self._config, self._reporter = request, request.config, reporter
        self._strategy, self._optimizer = strategy, optimizer
        self._root = request.root
        config = self._config.checkpoint
        self.schedule = SaveSchedule(config, self._config.train.eval_every, request.failures, step)
        self._is_main = strategy.workers.rank == 0
        self._connection = connection
        self._snapshot: Snapshot | None = None
        self._is_background = self._root is not None and config.background is not False and SHARED_MEMORY.is_dir()
        self._is_direct = self._is_background and config.background == "auto" and trained_bytes <= SMALL
        """Whether checkpoints are written without a snapshot, as long as that has cost less than a holder process
        would."""
        self._direct_s = 0.0
        """Seconds for which checkpoints without a snapshot have blocked training."""
        self._background = _Background()
        self._starting: Future[None] | None = None
        self._writing: Future[None] | None = None
        self._handed_over = threading.Event()
        """Set when the current write no longer needs this process, or has failed."""
        self._reported = threading.Event()
        """Set when the step of the current write has been reported, or will not be."""
        self._is_closed = False
        """Whether the training has failed before it reported the step of the current write, which is not announced."""
        self._blocked_s = self._write_s = 0.0
        """Seconds for which the last save blocked training, and seconds of its work in the background."""
        if not self._is_direct:
            self._hold()

    def save(self, progress: Progress, metrics: dict[str, float] | None, *, finished: bool, stops: bool) -> str | None:
        """Save a checkpoint, with the metrics of an evaluation at this step if there was one, after waiting for the
        previous one to be written; remove superseded ones.

        The checkpoint may be written in the background; the reporter is told when it is complete and its step has been
        reported, unless this call waits for that.

        Returns:
            The checkpoint's folder, on rank 0 and if it is complete and kept.

        Raises:
            OSError: This checkpoint or the previous one could not be written.
        """
        if self._root is None:
            return None
        began = time.perf_counter()
        self.schedule.saved(progress.step)
        self.wait()
        path = checkpoint_path(self._root, progress.step)
        evaluates = self._request.evaluator is None
        waits = stops or finished or self._reporter.waits_for_decision or not evaluates
        takes_snapshot = self._take_snapshot(progress, metrics)
        if takes_snapshot:
            write: Callable[[], None] | None = functools.partial(self._write_snapshot, path)
        else:
            write = write_checkpoint(self._root, self._config, self._strategy, self._optimizer, progress, metrics)
            waits = waits or not self._is_direct
        announce: Callable[[str], None] | None = None
        if metrics is not None and not waits:
            reported = metrics
            announce = lambda checkpoint: self._reporter.checkpoint(progress, reported, checkpoint)  # noqa: E731
        if write is not None:
            self._handed_over.clear()
            self._reported.clear()
            write_all = functools.partial(self._write, write, path, finished, announce)
            self._writing = self._background.begin(write_all if self._is_main else self._hand_over)
        self._blocked_s = time.perf_counter() - began
        if self._is_main and waits:
            self.wait()
        if not takes_snapshot:
            self._blocked_s = time.perf_counter() - began
            self._direct_s += self._blocked_s
        return str(path) if self._is_main and waits and path.exists() else None

    @property
    def votes(self) -> list[float]:
        """Votes of this worker for ``decide``; none without a folder. The first is for snapshots instead of blocking
        writes: rank 0 casts it if writing has cost more than a holder process, or if an earlier attempt took a
        snapshot. The second is for a new layout of the snapshot's files."""
        if self._root is None:
            return []
        prefers_snapshot = self._is_main and (self._connection is not None or self._direct_s > HOLDER_S)
        is_outdated = self._snapshot is not None and self._snapshot.is_outdated
        return [float(prefers_snapshot), float(is_outdated)]

    def decide(self, sums: Sequence[float]) -> None:
        """Decide from the sums of all workers' ``votes`` how the next checkpoint is saved. All workers call it before
        they save, so that saving needs no further agreement."""
        prefers_snapshot, is_outdated = sums or (0.0, 0.0)
        if prefers_snapshot and self._is_direct:
            self._is_direct = False
            self._hold()
        if is_outdated and self._snapshot is not None:
            self._snapshot.forget_layout()

    def observe_times(self, progress: Progress, step_s: float) -> None:
        """Update the schedule with the durations of steps and saves, equal on all workers, if it depends on them."""
        if self.schedule.needs_times:
            slowest = self._strategy.workers.max([self._blocked_s, self._write_s])
            self.schedule.observe(progress.seconds, step_s, *slowest)

    def reported(self) -> None:
        """Record that the last saved step, if any, has been reported."""
        self._reported.set()

    def wait(self) -> None:
        """Wait until all saved checkpoints are on the storage.

        Raises:
            OSError: A checkpoint could not be written, or another worker has ended.
        """
        self._reported.set()
        for each in (self._starting, self._writing):
            if each is not None:
                each.result()

    def finish(self) -> None:
        """Finish after a successful training: wait until everything is on the storage, and free shared memory.

        Raises:
            OSError: Something could not be written.
        """
        self.wait()
        self._background.end()
        self._background.join()
        self._forget()

    def close(self) -> None:
        """Leave the last snapshot and unfinished writes to the attempt that continues, unless the training has
        succeeded."""
        self._is_closed = not self._reported.is_set()
        self._reported.set()
        self._background.end()
        if self._starting is not None:
            futures.wait([self._starting])  # raises nothing: the training's own error is reported
        if self._writing is not None:
            self._handed_over.wait(HAND_OVER_WITHIN_S)  # not longer, since a worker may have stopped
        if self._connection is not None:
            self._connection.close()
        if self._snapshot is not None:
            self._snapshot.close()  # last: a GPU that waits for a dead worker may hold it up

    def _hold(self) -> None:
        """Start the process that holds the snapshot, unless it is running."""
        if self._is_main and self._is_background and self._connection is None:
            self._starting = self._background.begin(self._start_holder)

    def _take_snapshot(self, progress: Progress, metrics: dict[str, float] | None) -> bool:
        if self._is_direct or not self._is_background:
            return False
        if self._snapshot is None:
            self._snapshot = Snapshot(self._config, self._strategy, self._optimizer, self._connection)
        if self._snapshot.exists and self._snapshot.take(progress, metrics):
            return True
        self._is_background = False
        if self._snapshot.problem is not None:
            self._reporter.note(f"checkpoints are saved without a snapshot in memory: {self._snapshot.problem}")
        self._forget()
        return False

    def _start_holder(self) -> None:
        assert self._root is not None
        try:
            self._connection = HolderConnection.to_new(self._root)
        except (OSError, subprocess.SubprocessError) as error:
            self._reporter.note(f"checkpoints are saved without a snapshot in memory: {error}")

    def _write(
        self, write: Callable[[], None], path: Path, finished: bool, announce: Callable[[str], None] | None
    ) -> None:
        """Write a checkpoint, remove superseded ones, and announce it once its step has been reported; on rank 0."""
        try:
            began = time.perf_counter()
            write()
            self._write_s = time.perf_counter() - began
            if self._request.evaluator is None:  # otherwise when an evaluation has ended
                keep, objectives = self._config.checkpoint.keep, self._request.objectives
                remove_superseded(path.parent, keep, objectives, finished=finished)
            if announce is not None and path.exists():
                self._reported.wait()
                if not self._is_closed:
                    announce(str(path))
        finally:
            self._handed_over.set()

    def _write_snapshot(self, path: Path) -> None:
        """Have a checkpoint written once all parts of the snapshot have arrived; on rank 0."""
        assert self._snapshot is not None
        assert self._connection is not None
        try:
            self._snapshot.complete()
            self._connection.write(path, self._handed_over.set)
        except Exception as error:
            self._snapshot.tell_written(error)
            raise
        self._snapshot.tell_written(None)

    def _hand_over(self) -> None:
        """Send this worker's part of the snapshot to rank 0, and wait until it is written."""
        assert self._snapshot is not None
        try:
            self._snapshot.complete()
            self._handed_over.set()
            self._snapshot.wait_until_written()
        finally:
            self._handed_over.set()

    def _forget(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()
        if self._connection is not None:
            self._connection.forget()
            self._connection = None


class _Background:
    """A daemon thread that runs one task after another. It is reused, since starting a thread blocks the caller until
    the new thread first waits."""

    def __init__(self) -> None:
        self._todo: queue.SimpleQueue[tuple[Future[None], Callable[[], None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._thread.start()

    def begin(self, work: Callable[[], None]) -> Future[None]:
        """Queue a task; the result raises its error."""
        future: Future[None] = Future()
        self._todo.put((future, work))
        return future

    def end(self) -> None:
        """End the thread after the queued tasks."""
        self._todo.put(None)

    def join(self) -> None:
        """Wait until the thread has ended: Python may not end while it frees tensors, or the process aborts."""
        self._thread.join()

    def _run(self) -> None:
        # When this thread is woken, it does not interrupt the one that saves, nor those of other workers. It waits for
        # nothing else: until it has handed the parts over, the death of this worker loses the snapshot.
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # a container may forbid it
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        while (begun := self._todo.get()) is not None:
            future, work = begun
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - raised by the next call of the training
                future.set_exception(error)
            else:
                future.set_result(None)
