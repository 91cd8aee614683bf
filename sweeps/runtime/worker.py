"""What runs on the workers of a slot: one trial after another, each with the mailbox as its reporter."""

from __future__ import annotations

import contextlib
import itertools
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray

from sweeps.provenance.redacted_text import redacted_error
from sweeps.runtime.broker import Ended, Log, Note, Report, Started
from sweeps.runtime.checkpoint_layout import Origin
from sweeps.runtime.memory_cleanup import Leftovers
from sweeps.runtime.report_log import Spool, read_spool
from sweeps.runtime.worker_log import WorkerLog
from sweeps.tracking.held_checkpoints import hold
from sweeps.worker_error import caught
from sweeps_train.config import FunctionConfig, TrainingConfig
from sweeps_train.out_of_memory import MicroBatchHalved
from sweeps_train.progress import Progress
from sweeps_train.reporter import Stop

SEND_EVERY_S = 0.2
"""A call of the mailbox takes some tenths of a millisecond, a line in the spool a tenth of that: steps that are quick
share a call."""


class WorkerFailed(Exception):
    """Ends a worker whose error the mailbox has."""


@dataclass(frozen=True)
class Assignment:
    """What the workers of a trial are given."""

    trial: str
    attempt: int
    training: TrainingConfig | FunctionConfig
    metric: str
    mode: str
    checkpoint_folder: str
    log_folder: str
    origin: Origin | None
    """Where it goes on from, if it has taken over another trial's state."""
    largest_micro_batch: int | None
    """What fits, if the attempt before has found that out."""
    waits: bool
    """After each report, for what the scheduler decides: so that it is paused or copied in the state that was judged,
    and nothing is trained that would be thrown away."""
    heard: int | None
    """Step of the last report of earlier attempts that Tune may have heard of: what they measured after it is posted
    again, since a checkpoint may be later. None: nothing is."""
    mailbox: Any
    holds_checkpoints: bool = False
    """Reported checkpoints are copied into MLflow: they are held for that."""


def serve(config: dict[str, Any]) -> None:
    """Runs on every worker of a slot: one trial after another, until there are no more.

    An error ends the worker, and with it the whole group: the other workers may be waiting for it in a collective.
    """
    import ray.train

    slot, mailbox = config["slot"], config["mailbox"]
    context = ray.train.get_context()
    rank, num_workers = context.get_world_rank(), context.get_world_size()
    leftovers, log = Leftovers(), WorkerLog(rank, num_workers)
    for index in itertools.count():
        assignment: Assignment | None = ray.get(mailbox.next_assignment.remote(slot, index))
        if assignment is None:
            return
        try:
            with log.of_trial(assignment.log_folder), _errors_printed():
                _train(assignment, is_main=rank == 0)
        except MicroBatchHalved as halved:  # said at once, since all others wait for this worker
            ended = Ended(assignment.trial, assignment.attempt, str(halved), halved_to=halved.half)
            ray.get(mailbox.ended.remote(ended))
            raise
        except BaseException as error:  # noqa: BLE001 - sys.exit too
            told = redacted_error(caught(error, rank, num_workers))
            ray.get(mailbox.failed.remote(assignment.trial, assignment.attempt, told))
            raise WorkerFailed(told.described) from None  # the error itself may not survive the way to the driver
        memory_mib = leftovers.clear()
        ray.get(mailbox.left.remote(assignment.trial, assignment.attempt, rank, num_workers, memory_mib))


@contextlib.contextmanager
def _errors_printed() -> Iterator[None]:
    """The end of the log says why, as that of any program does."""
    try:
        yield
    except MicroBatchHalved:
        raise
    except BaseException:
        traceback.print_exc()
        raise


def _train(assignment: Assignment, *, is_main: bool) -> None:
    """One trial, with the mailbox as its reporter."""
    reporter = MailboxReporter(assignment) if is_main else None
    training = assignment.training
    folder, metric, mode = assignment.checkpoint_folder, assignment.metric, assignment.mode
    if isinstance(training, FunctionConfig):
        from sweeps_train.function import run_function

        run_function(training, reporter=reporter, checkpoint_folder=folder, metric=metric, mode=mode)
    else:
        from sweeps_train.loop import train

        train(
            training,
            reporter=reporter,
            checkpoint_folder=folder,
            metric=metric,
            mode=mode,
            largest_micro_batch=assignment.largest_micro_batch,
        )
    if reporter is not None:
        reporter.flush()


class MailboxReporter:
    """Rank 0's side of the mailbox: posts without waiting."""

    def __init__(self, assignment: Assignment):
        self._to = assignment
        self._mailbox = assignment.mailbox
        self._unheard = unheard(assignment)
        self._spool = Spool(assignment.checkpoint_folder)
        self._stop = self._mailbox.stop_requested.remote(assignment.trial, assignment.attempt)
        self._previous_report: Any = None
        self._posted: list[Any] = []
        self._logs: list[Log] = []
        self._logs_sent_at = 0.0
        self._send(
            self._mailbox.post.remote(Started(assignment.trial, assignment.attempt, _now_ms(), assignment.origin))
        )

    def log(self, progress: Progress, metrics: dict[str, float]) -> None:
        self._post_unheard(progress.step)
        log = Log(self._to.trial, self._to.attempt, progress.step, metrics, _now_ms())
        self._spool.write(log)
        self._logs.append(log)
        if time.monotonic() - self._logs_sent_at >= SEND_EVERY_S:
            self._send_logs()

    def report(self, progress: Progress, metrics: dict[str, float], checkpoint: str | None, done: bool) -> None:
        self._post_unheard(progress.step)
        self._send_logs()
        if self._previous_report is not None:
            ray.get(self._previous_report)  # an asynchronous actor may reorder; reports must not be
        report = Report(
            self._to.trial,
            self._to.attempt,
            progress.step,
            metrics,
            _now_ms(),
            progress=progress.resources(),
            checkpoint=checkpoint,
            held=self._hold(checkpoint),
            done=done,
        )
        self._spool.write(report)
        if self._to.waits:
            ray.get(self._mailbox.post_and_wait.remote(report))
        else:
            self._previous_report = self._send(self._mailbox.post.remote(report))

    def _hold(self, checkpoint: str | None) -> str | None:
        if checkpoint is None or not self._to.holds_checkpoints:
            return None
        return hold(checkpoint, self._to.checkpoint_folder)

    def note(self, text: str) -> None:
        self._send(self._mailbox.post.remote(Note(self._to.trial, self._to.attempt, text)))

    def should_stop(self) -> Stop:
        ready, _ = ray.wait([self._stop], timeout=0)
        if not ready:
            return Stop.NO
        return Stop.DISCARD if ray.get(self._stop) else Stop.SAVE

    def flush(self) -> None:
        """Wait until everything has arrived: only then may the worker group end."""
        self._send_logs()
        ray.get(self._posted)
        self._spool.close()

    def _post_unheard(self, step: int) -> None:
        """Reports of earlier attempts before the step at which this one goes on."""
        unheard, self._unheard = [event for event in self._unheard if event.step < step], []
        if unheard:
            ray.get(self._mailbox.post_all.remote(unheard))

    def _send_logs(self) -> None:
        if self._logs:
            logs, self._logs = self._logs, []
            self._send(self._mailbox.post_all.remote(logs))
        self._logs_sent_at = time.monotonic()

    def _send(self, posted: Any) -> Any:
        _, self._posted = ray.wait([*self._posted, posted], num_returns=len(self._posted) + 1, timeout=0)
        return posted


def unheard(assignment: Assignment) -> list[Log | Report]:
    """Reports of earlier attempts that Tune may not have heard of: each step as it was measured first."""
    if assignment.heard is None:
        return []
    found: dict[tuple[type, int], Log | Report] = {}
    for event in read_spool(assignment.checkpoint_folder):
        if event.step >= assignment.heard:
            found.setdefault((type(event), event.step), replace(event, attempt=assignment.attempt))
    return sorted(map(_with_its_checkpoint, found.values()), key=lambda event: event.step)


def _with_its_checkpoint(event: Log | Report) -> Log | Report:
    """The report without its checkpoint, if a later one has replaced that and it was not kept for MLflow."""
    if not isinstance(event, Report) or event.checkpoint is None:
        return event
    kept = [folder for folder in (event.checkpoint, event.held) if folder is not None and Path(folder).is_dir()]
    return event if kept else replace(event, checkpoint=None, held=None)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
