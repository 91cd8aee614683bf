"""Starts queued sweeps within the limits, each as a process of its own, and sees them to their end: also those that
another service on this machine has started, and has not lived to see end."""

from __future__ import annotations

import logging
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Engine

from sweeps.config.service import Queue
from sweeps.errors import SweepsError, TrackingUnreachable, UnknownName
from sweeps.folder import LOG_FILE
from sweeps.service import subprocesses
from sweeps.service.clock import Clock
from sweeps.service.database.engine import writing
from sweeps.service.database.storage_errors import is_unavailable, outage
from sweeps.service.notify.cli_notify import VARIABLE
from sweeps.service.poller import Poller
from sweeps.service.queue import jobs
from sweeps.service.queue.failure_detector import FailureDetector
from sweeps.service.queue.heartbeat import Heartbeat
from sweeps.service.queue.jobs import Job
from sweeps.service.queue.requests import Extend, Request, Retrain, Run

if TYPE_CHECKING:
    import subprocess

    from sweeps.tracking.record import SweepRecord

T = TypeVar("T")

LOOK_EVERY_S = 0.5
TERMINATE_AFTER_S, KILL_AFTER_S = 90.0, 120.0
"""Seconds after which a sweep that is told to end, and has not, gets SIGTERM, and then SIGKILL."""
STORE_AWAY_S = 10.0
"""Seconds after which a store that was away is asked again."""
INTERRUPTED = 130

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Listeners:
    """What else happens around a job. Each is a list, to which other parts of the service add."""

    before_start: list[Callable[[Job], Sequence[str]]] = field(default_factory=list)
    """Overrides that a ``run`` gets just before it starts for the first time, besides its own. An error is the job's,
    and it does not start."""
    judges: list[Callable[[Job], None]] = field(default_factory=list)
    """Asked before every start, also after its process has died. An error is the job's, and it does not start."""
    ended: list[Callable[[Job], None]] = field(default_factory=list)
    """Hear of a job that has ended, one at a time on a thread of their own; at least once, unless the service dies."""


class JobRunner:
    """Runs what is in the queue, on a thread of its own."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        limits: Queue,
        heartbeat: Heartbeat,
        *,
        output_dir: Path,
        tracking_uri: str,
        config_dirs: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            engine: The service's database.
            clock: What time it is.
            limits: How much may run.
            heartbeat: This service.
            output_dir: Of the sweeps.
            tracking_uri: Where they are recorded.
            config_dirs: Folders of configs before ours.
            environment: Of the sweeps' processes; default: this one's.
        """
        self.listeners = Listeners()
        self._engine, self._clock, self._limits, self._heartbeat = engine, clock, limits, heartbeat
        self._output_dir, self._uri, self._config_dirs = output_dir.absolute(), tracking_uri, config_dirs
        environment = os.environ if environment is None else environment
        self._environment = {**environment, "MLFLOW_TRACKING_URI": tracking_uri}
        self._environment.pop(VARIABLE, None)  # the service tells of its sweeps itself
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._busy: dict[int, Future[None]] = {}
        """What is being done about a job, by its number."""
        self._told: dict[int, float] = {}
        """When a job was told to end."""
        self._not_before: dict[int, float] = {}
        """When a job is seen to again, for which MLflow was away."""
        self._hands = ThreadPoolExecutor(4, "runner")
        self._ears = ThreadPoolExecutor(1, "ended")
        self._watch = FailureDetector(
            engine, clock, self._record, output_dir=self._output_dir, lost_after_s=limits.lost_after_s
        )
        self._poller = Poller("runner", clock, self.poll, LOOK_EVERY_S)

    def start(self) -> None:
        """Begin."""
        self._poller.start()

    def stop(self) -> None:
        """End; the sweeps that run do not."""
        self._poller.stop()
        self.close()

    def close(self) -> None:
        """Let go of what it runs."""
        self._hands.shutdown(cancel_futures=True)
        self._ears.shutdown()
        self._heartbeat.leave()

    def wake(self) -> None:
        """Look at the queue now."""
        self._poller.wake()

    def control_folder(self, job: Job) -> Path:
        """Where a job's process has its log. A database that is begun anew counts from 1 again: hence the time."""
        return subprocesses.control_folder(self._output_dir, f"job-{job.id}-{1000 * job.submitted:.0f}")

    def log(self, job: Job) -> Path:
        """What a job's process prints."""
        return self.control_folder(job) / LOG_FILE

    def poll(self) -> None:
        """Do what is to be done now."""
        self._heartbeat.beat()
        self._busy = {number: done for number, done in self._busy.items() if not done.done()}
        with self._engine.connect() as connection:
            mine = jobs.running_on(connection, self._heartbeat.service)
            others = jobs.orphans_on(connection, self._heartbeat.host, self._heartbeat.silent_since)
            strays = jobs.orphans_elsewhere(connection, self._heartbeat.host, self._heartbeat.silent_since)
            waits = bool(jobs.query(connection, states=[jobs.QUEUED], limit=1))
        if others:
            mine += self._take_over()
        for job in filter(self._is_to_be_seen_to, mine):
            self._see_to(job)
        for job in filter(self._is_to_be_seen_to, strays):
            self._see_to_stray(job)
        while waits and not self._poller.is_stopping:
            with writing(self._engine) as connection:
                now = self._clock.now()
                claimed = jobs.claim(connection, self._limits, self._heartbeat.service, self._heartbeat.host, now)
            if claimed is None:
                break
            self._do(claimed, self._begin)

    def _is_to_be_seen_to(self, job: Job) -> bool:
        return job.id not in self._busy and self._clock.now() >= self._not_before.get(job.id, 0.0)

    def _take_over(self) -> list[Job]:
        beat = self._heartbeat
        with writing(self._engine) as connection:
            taken = jobs.take_over(connection, beat.service, beat.host, beat.silent_since)
        for job in taken:
            logger.info("job %d (%s) is taken over from a service that has died", job.id, job.sweep)
        return taken

    def _see_to(self, job: Job) -> None:
        """A job that is this service's, and of which nothing is being done."""
        folder = self.control_folder(job)
        child = self._children.get(job.id)
        if child is not None and child.poll() is None:
            pass
        elif not subprocesses.is_running(folder):
            self._do(job, self._go_on_or_end)
            return
        now = self._clock.now()
        if job.stop_asked is None and job.end_by is not None and now >= job.end_by:
            with writing(self._engine) as connection:
                job = jobs.request_stop(connection, job.id, now)
        if job.stop_asked is None:
            return
        if job.id not in self._told:
            self._told[job.id] = now
            self._do(job, self._tell_to_stop)
        elif now - self._told[job.id] > KILL_AFTER_S:
            subprocesses.send(folder, signal.SIGKILL)
        elif now - self._told[job.id] > TERMINATE_AFTER_S:
            subprocesses.send(folder, signal.SIGTERM)

    def _see_to_stray(self, job: Job) -> None:
        """One on another machine, where no service is any more."""
        self._not_before[job.id] = self._clock.now() + self._watch.every_s
        self._do(job, self._inherit_if_lost)

    def _do(self, job: Job, what: Callable[[Job], None]) -> None:
        def doing() -> None:
            try:
                what(job)
            except TrackingUnreachable as error:
                logger.warning("job %d (%s) waits: %s", job.id, job.sweep, error)
                self._not_before[job.id] = self._clock.now() + STORE_AWAY_S
            except SweepsError as error:
                self._end(job, "failed", str(error))
            except Exception as error:
                if is_unavailable(error):
                    outage.report(error, f"job {job.id}")
                else:
                    logger.exception("job %d (%s): cannot be seen to; trying again", job.id, job.sweep)

        self._busy[job.id] = self._hands.submit(doing)

    # --- what is done about a job, on threads of their own ------------------------------------------------------

    def _begin(self, job: Job) -> None:
        asked = job.parsed_request
        if isinstance(asked, Run):
            more = [override for listener in self.listeners.before_start for override in _heard(listener, job)]
            asked = asked.model_copy(update={"overrides": [*asked.overrides, *more]})
        self._start(job, asked, [self._command(asked.arguments())])

    def _go_on_or_end(self, job: Job) -> None:
        """The process does not run: it has done what it was asked, or it died, or never began."""
        outcome = subprocesses.outcome(self.control_folder(job))
        if outcome is not None and outcome.status != INTERRUPTED:
            document = outcome.document if isinstance(outcome.document, dict) else {}
            state = document.get("status", "finished" if outcome.status == 0 else "failed")
            if state == "interrupted":
                state = "stopped"
            self._end(job, state if outcome.error is None else "failed", outcome.error)
        elif job.stop_asked is not None or (job.end_by is not None and self._clock.now() >= job.end_by):
            self._end(job, "stopped" if self._record(job) else "cancelled")
        elif job.attempts == 0:
            self._begin(job)
        elif job.attempts <= self._limits.restarts:
            logger.warning("job %d (%s): its process has died; it goes on", job.id, job.sweep)
            self._start(job, job.parsed_request, self._again(job))
        else:
            words = subprocesses.last_words(self.control_folder(job))
            self._end(
                job,
                "failed",
                f"its process has died {job.attempts} times; `python -m sweeps resume {job.sweep}` goes on with it, "
                f"if it has begun. It last said: {words}",
            )

    def _inherit_if_lost(self, job: Job) -> None:
        if not self._watch.is_lost(job):
            return
        with writing(self._engine) as connection:
            mine = jobs.adopt(connection, job, self._heartbeat.service, self._heartbeat.host)
        if mine is None:
            return
        self._not_before.pop(job.id, None)
        folder = self.control_folder(job)
        if folder.is_dir() or job.attempts == 0:
            logger.warning("job %d (%s): its machine %s is lost; it goes on here", job.id, job.sweep, job.host)
            subprocesses.forget_lost(folder)
            return
        record = self._record(job)
        ended = record is not None and record.status in jobs.ENDED
        state = record.status if record is not None and ended else "failed" if job.stop_asked is None else "stopped"
        why = (
            f"its machine {job.host} has given no sign of life for {self._limits.lost_after_s:g} s "
            "(queue.lost_after_s), and what it wrote is not to be seen from another one; if the machine comes back, "
            f"`python -m sweeps resume {job.sweep}` there goes on with it"
        )
        self._end(mine, state, None if ended else why)

    def _again(self, job: Job) -> list[list[str]]:
        """Commands for a job whose process has died."""
        asked = job.parsed_request
        if isinstance(asked, Extend):
            return [self._command(asked.arguments())]
        record = self._record(job)
        if record is None:
            # Nobody else has made this folder: the name is this job's alone.
            shutil.rmtree(self._output_dir / job.sweep, ignore_errors=True)
            return [self._command(asked.arguments())]
        commands = [self._command(["resume", job.sweep])]
        if isinstance(asked, Retrain) and not asked.no_register:
            named = asked.model_copy(update={"register_as": asked.register_as or record.conf})
            commands.append(self._command(["best", job.sweep, *named.registering()]))
        return commands

    def _start(self, job: Job, asked: Request, commands: Sequence[Sequence[str]]) -> None:
        for judge in self.listeners.judges:
            _heard(judge, job)
        with writing(self._engine) as connection:
            held = jobs.begin_attempt(connection, job, self._heartbeat.service, asked)
        if held is None:
            return
        sweep_folder = self._output_dir / job.sweep
        child = subprocesses.start(self.control_folder(job), commands, sweep_folder, self._environment)
        if child is None:
            return  # another service has just done so
        self._children[job.id] = child
        with writing(self._engine) as connection:
            jobs.set_driver(connection, job, child.pid)
        logger.info("job %d (%s): %s starts as process %d", job.id, job.sweep, job.verb, child.pid)

    def _tell_to_stop(self, job: Job) -> None:
        from sweeps.driver.stop import request_stop
        from sweeps.tracking.reader import load_sweep

        try:
            request_stop(load_sweep(self._uri, job.sweep))
        except SweepsError as error:
            logger.warning("job %d (%s): %s; it gets SIGTERM", job.id, job.sweep, error)
            subprocesses.send(self.control_folder(job), signal.SIGTERM)

    def _end(self, job: Job, state: str, error: str | None = None) -> None:
        with writing(self._engine) as connection:
            ended = jobs.end(connection, job, self._heartbeat.service, state, self._clock.now(), error)
        self._children.pop(job.id, None)
        self._told.pop(job.id, None)
        self._not_before.pop(job.id, None)
        self.wake()
        if ended is None:
            return
        logger.info("job %d (%s): %s%s", job.id, job.sweep, state, f": {error}" if error else "")
        for listener in self.listeners.ended:
            self._ears.submit(_tell, listener, ended)

    def _command(self, arguments: Sequence[str]) -> list[str]:
        folders = [f"--config-dir={folder}" for folder in self._config_dirs]
        return [arguments[0], *folders, *arguments[1:], "--json"]

    def _record(self, job: Job) -> SweepRecord | None:
        """The job's sweep, if there is one yet."""
        from sweeps.tracking.reader import load_sweep

        try:
            return load_sweep(self._uri, job.sweep)
        except UnknownName:
            return None


def _heard(listener: Callable[[Job], T], job: Job) -> T:
    try:
        return listener(job)
    except SweepsError:
        raise
    except Exception as error:
        if is_unavailable(error):
            raise  # it starts later
        logger.exception("job %d (%s) cannot start", job.id, job.sweep)
        raise SweepsError(f"what comes before its start failed: {error!r}") from error


def _tell(listener: Callable[[Job], None], job: Job) -> None:
    try:
        listener(job)
    except Exception:
        logger.exception("job %d (%s) has ended, and what follows from it failed", job.id, job.sweep)
