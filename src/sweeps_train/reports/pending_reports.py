"""Reports whose evaluations run elsewhere, from checkpoints, while the training continues."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sweeps_train.checkpoints.checkpoint import complete_checkpoints
from sweeps_train.checkpoints.checkpoint_metrics import read_metrics, write_evaluation
from sweeps_train.checkpoints.kept_checkpoints import remove_superseded
from sweeps_train.checkpoints.training_state import read_progress
from sweeps_train.config.better import Objective
from sweeps_train.reports.progress import Progress
from sweeps_train.reports.reporter import Reporter, Stop

MOST_PENDING = 4
"""Maximum number of concurrent evaluations; with more, the training waits, since each of them needs its checkpoint."""
LOOK_EVERY_S = 1.0


class Evaluator(Protocol):
    """Interface to the component that runs the evaluations; used on rank 0 only."""

    def begin(self, checkpoint: Path) -> None:
        """Start evaluating a checkpoint, without waiting."""

    def next_result(self, within_s: float) -> dict[str, float] | None:
        """Return the metrics of the oldest checkpoint whose metrics were not returned yet; None if they are not ready
        in time."""

    def cancel(self) -> None:
        """Cancel running evaluations."""


@dataclass(frozen=True)
class _Pending:
    progress: Progress
    metrics: dict[str, float]
    checkpoint: Path
    done: bool


class PendingReports:
    """Reports that wait for their evaluations, in the order of their steps; on rank 0 only."""

    def __init__(
        self,
        evaluator: Evaluator,
        reporter: Reporter,
        root: Path,
        keep: Sequence[str],
        check: Callable[[dict[str, float]], None],
        objectives: Sequence[Objective],
    ):
        """Wait for evaluations of checkpoints in the folder ``root``, from which superseded ones are removed. ``check``
        raises an error if the first objective is missing."""
        self._evaluator, self._reporter, self._root, self._keep = evaluator, reporter, root, keep
        self._check, self._objectives = check, objectives
        self._pending: deque[_Pending] = deque()

    def resume(self, is_due: Callable[[int], bool], is_last: Callable[[int], bool]) -> None:
        """Start the evaluations that an earlier attempt did not complete. A last step that was copied from another
        training is evaluated too, since it was not reported here. Repeat the reports of completed evaluations, except
        that of the newest checkpoint, which the training repeats."""
        checkpoints = complete_checkpoints(self._root)
        for path in checkpoints:
            progress, metrics = read_progress(path), read_metrics(path)
            done = is_last(progress.step)
            if not is_due(progress.step):
                continue
            if metrics is None or (done and not metrics):
                self.add(progress, {}, path, done=done)
            elif metrics and path != checkpoints[-1]:  # the process may have died before it was reported
                self._reporter.report(progress, metrics, str(path), done)

    def add(self, progress: Progress, metrics: dict[str, float], checkpoint: Path, *, done: bool) -> None:
        """Add a report whose complete checkpoint is to be evaluated. The metrics of the evaluation are added to its
        own."""
        while len(self._pending) >= MOST_PENDING and self._reporter.should_stop() is Stop.NO:
            self._deliver_next(LOOK_EVERY_S)
        self._pending.append(_Pending(progress, metrics, checkpoint, done))
        self._evaluator.begin(checkpoint)

    def deliver(self) -> None:
        """Report the completed evaluations."""
        while self._pending and self._deliver_next(0.0):
            pass

    def deliver_all(self) -> None:
        """Wait for all evaluations and report them, unless the reporter requests a stop."""
        while self._pending and self._reporter.should_stop() is Stop.NO:
            self._deliver_next(LOOK_EVERY_S)

    def close(self) -> None:
        """Cancel unfinished evaluations; ``resume`` starts them again."""
        self._evaluator.cancel()

    def _deliver_next(self, within_s: float) -> bool:
        evaluated = self._evaluator.next_result(within_s)
        if evaluated is None:
            return False
        ended = self._pending.popleft()
        metrics = ended.metrics | evaluated
        self._check(metrics)
        write_evaluation(ended.checkpoint, metrics)
        needed = {each.checkpoint for each in self._pending}
        remove_superseded(self._root, self._keep, self._objectives, finished=ended.done, needed=needed)
        kept = str(ended.checkpoint) if ended.checkpoint.exists() else None
        self._reporter.report(ended.progress, metrics, kept, ended.done)
        return True
