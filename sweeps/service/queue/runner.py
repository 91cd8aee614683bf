"""The job runner: starts queued jobs within the limits, each as a separate process, watches them and records how they
end. It also takes over the jobs of a dead service."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sweeps.compose.service_config import VARIABLES
from sweeps.config.service import Service
from sweeps.constants import TAG_FOLDER
from sweeps.errors import AlreadyDone, ArtifactsUnreachable, SweepsError, TrackingUnreachable
from sweeps.folders.driver_lock import last_heartbeat
from sweeps.folders.sweep_folder import LOG_FILE
from sweeps.service import subprocesses
from sweeps.service.clock import SteadyTime
from sweeps.service.database.engine import writing
from sweeps.service.database.storage_errors import is_unavailable, outage
from sweeps.service.notify.cli_notify import VARIABLE
from sweeps.service.poller import MLFLOW_S, Poller
from sweeps.service.queue import claims, jobs
from sweeps.service.queue.heartbeat import Heartbeat
from sweeps.service.queue.job_requests import Extend, Request, Resume, Run
from sweeps.service.queue.jobs import Job
from sweeps.service.queue.lost_machines import FailureDetector, Silence
from sweeps.service.service_context import ServiceContext
from sweeps.service.service_log import logged_about
from sweeps.tracking.client import reaching_within

if TYPE_CHECKING:
    import subprocess

    from sweeps.tracking.record import SweepRecord

T = TypeVar("T")

POLL_EVERY_S = 0.5
TERMINATE_AFTER_S, KILL_AFTER_S = 90.0, 120.0
"""Seconds after a stop request until a running sweep gets SIGTERM, and SIGKILL, besides those that its trials may take
to end."""
LOOK_EVERY_S = 10.0
"""Seconds between two checks of a driver's heartbeat."""
STORE_AWAY_S = 10.0
"""Seconds until a job is tried again after MLflow did not answer, or the disk was full."""
SHORTAGES = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""Error numbers of a machine that lacks processes, memory or open files for a while."""
INTERRUPTED, TRY_AGAIN = 130, 75
"""Exit statuses after which a driver is restarted as if it had died: it was interrupted, MLflow did not answer, or Ray
did not start."""
NAME_TAKEN = (
    "a sweep {} already exists, which this job has not started; submit it again with another --name (if the "
    "service's database was restored from a backup, that sweep may be this job's)"
)

logger = logging.getLogger(__name__)


@dataclass
class _JobState:
    """State of a running job in this process."""

    work: Future[None] | None = None
    """The step in progress, such as starting the process."""
    process: subprocess.Popen[bytes] | None = None
    """The driver, if this process has started it."""
    stop_sent: float | None = None
    """Time when the driver was told to stop, by the steady clock."""
    ends_within_s: float = 0.0
    """Maximum seconds that the sweep's trials may take to end, by its config."""
    not_before: float = 0.0
    """Time before which no further step is taken, by the steady clock."""
    unread: int = 0
    """Number of steps that failed because artifacts could not be read."""
    silence: Silence = field(default_factory=Silence)
    """Time since the driver's last heartbeat, or its start."""
    look_at: float = 0.0
    """Time of the next check of the heartbeat."""

    @property
    def is_busy(self) -> bool:
        """Whether a step of the job is in progress."""
        return self.work is not None and not self.work.done()


class JobRunner(Poller):
    """Runs the jobs of the queue, on its own thread."""

    def __init__(
        self,
        service: ServiceContext,
        heartbeat: Heartbeat,
        *,
        prepare: Callable[[Job], Sequence[str]] = lambda _: (),
        check: Callable[[Job], Mapping[str, str]] = lambda _: {},
        when_ended: Callable[[Job], object] = lambda _: None,
    ) -> None:
        """Make the runner of a service.

        Args:
            service: The service.
            heartbeat: Heartbeat of the service.
            prepare: Returns further overrides for a ``run`` before its first start. An error fails the job instead of
                starting it.
            check: Called before every start, including restarts; returns further environment variables of the process.
                An error fails the job instead of starting it.
            when_ended: Called with every ended job, at least once, unless the service dies; must return at once.
        """
        super().__init__("runner", service.clock, self.poll, POLL_EVERY_S)
        self.prepare, self.check, self.when_ended = prepare, check, when_ended
        self._engine, self._clock, self._limits = service.database, service.clock, service.config.queue
        self._time = SteadyTime(service.clock)
        """Clock for the deadlines of jobs."""
        self._output_dir, self._uri = service.config.folder, service.config.tracking_uri
        self._config_dirs, self._heartbeat = service.config_dirs, heartbeat
        self._environment = {**_sweep_environment(service.config), "MLFLOW_TRACKING_URI": self._uri}
        self._states: dict[int, _JobState] = {}
        """States by job id; only ``poll`` removes them."""
        self._workers = ThreadPoolExecutor(4, "runner")
        self._detector = FailureDetector(service, self._record)

    def stop(self) -> None:
        """Stop polling; running sweeps continue."""
        super().stop()
        self.close()

    def close(self) -> None:
        """Finish the steps in progress and release the jobs to other services."""
        self._workers.shutdown(cancel_futures=True)
        self._heartbeat.leave()

    def control_folder(self, job: Job) -> Path:
        """Return the control folder of a job's process. Its name includes the time, since job ids start from 1 again
        in a new database."""
        return subprocesses.control_folder(self._output_dir, f"job-{job.id}-{1000 * job.submitted:.0f}")

    def log(self, job: Job) -> Path:
        return self.control_folder(job) / LOG_FILE

    def poll(self) -> None:
        """Start the next step of every job that needs one, and start queued jobs."""
        beat = self._heartbeat
        beat.beat()
        with self._engine.connect() as connection:
            own = claims.running_on(connection, beat.service)
            orphans = claims.orphans(connection, beat.silent_since)
            has_queued = bool(jobs.query(connection, states=[jobs.QUEUED], limit=1))
        elsewhere = [job for job in orphans if job.host != beat.host]
        if len(elsewhere) < len(orphans):
            own += self._take_over()
        known = {job.id for job in [*own, *elsewhere]}
        self._states = {number: state for number, state in self._states.items() if state.is_busy or number in known}
        for job in filter(self._is_due, own):
            try:
                self._advance(job)
            except OSError as error:  # from this job's files; other jobs must not wait for them
                logger.warning("job %d (%s): its files cannot be read: %s; trying again", job.id, job.sweep, error)
                self._state(job).not_before = self._clock.steady() + LOOK_EVERY_S
        for job in filter(self._is_due, elsewhere):
            self._state(job).not_before = self._clock.steady() + self._detector.every_s
            self._submit(job, self._adopt_if_lost)
        while has_queued and not self.is_stopping:
            with writing(self._engine) as connection:
                claimed = claims.claim(connection, self._limits, beat.service, beat.host, self._time.now())
            if claimed is None:
                break
            self._submit(claimed, self._begin)

    def _state(self, job: Job) -> _JobState:
        return self._states.setdefault(job.id, _JobState())

    def _is_due(self, job: Job) -> bool:
        state = self._state(job)
        return not state.is_busy and self._clock.steady() >= state.not_before

    def _take_over(self) -> list[Job]:
        beat = self._heartbeat
        with writing(self._engine) as connection:
            taken = claims.take_over(connection, beat.service, beat.host, beat.silent_since)
        for job in taken:
            with logged_about(job=job.id, sweep=job.sweep):
                logger.info("job %d (%s) is taken over from a service that has died", job.id, job.sweep)
        return taken

    def _advance(self, job: Job) -> None:
        """Start the next step of a job of this service that is not busy."""
        folder, state = self.control_folder(job), self._state(job)
        is_alive = state.process is not None and state.process.poll() is None
        if not is_alive and not subprocesses.is_running(folder):
            self._submit(job, self._restart_or_end)
            return
        if job.stop_asked is None and self._is_over(job):
            with writing(self._engine) as connection:
                job = jobs.request_stop(connection, job.id, self._time.now())
        if job.stop_asked is None:
            if self._has_stalled(job):
                logger.error(
                    "job %d (%s): its process has sent no heartbeat for %.0f s and is killed; it continues from its "
                    "checkpoints. Its log shows what it was waiting for",
                    *(job.id, job.sweep, self._limits.lost_after_s),
                )
                subprocesses.send(folder, signal.SIGKILL)
            return
        now = self._clock.steady()
        if state.stop_sent is None:
            state.stop_sent = now
            self._submit(job, self._tell_to_stop)
        elif (late_s := now - state.stop_sent - state.ends_within_s) > KILL_AFTER_S:
            subprocesses.send(folder, signal.SIGKILL)
        elif late_s > TERMINATE_AFTER_S:
            subprocesses.send(folder, signal.SIGTERM)

    def _is_over(self, job: Job) -> bool:
        """Whether a job's deadline has passed."""
        return job.end_by is not None and self._time.now() >= job.end_by

    def _has_stalled(self, job: Job) -> bool:
        """Whether a sweep's live process has not changed its heartbeat for ``queue.lost_after_s``."""
        state, now = self._state(job), self._clock.steady()
        if now < state.look_at:
            return False
        state.look_at = now + LOOK_EVERY_S
        heartbeat = last_heartbeat(self._output_dir / job.sweep)  # None: it has not begun, or the search is over
        return state.silence.lasts(heartbeat, now, self._limits.lost_after_s)

    def _has_begun(self, job: Job) -> bool:
        """Whether a job's process was ever started. The control folder shows it even if the row comes from an old
        backup of the database."""
        return job.attempts > 0 or self.control_folder(job).is_dir()

    def _submit(self, job: Job, step: Callable[[Job], None]) -> None:
        """Run a step on a worker thread."""
        state = self._state(job)

        @logged_about(job=job.id, sweep=job.sweep)
        @reaching_within(MLFLOW_S)
        def run() -> None:
            try:
                step(job)
            except (TrackingUnreachable, ArtifactsUnreachable) as error:
                # Missing credentials do not appear by themselves.
                state.unread += isinstance(error, ArtifactsUnreachable)
                if state.unread > self._limits.restarts:
                    self._end(job, "failed", str(error))
                    return
                logger.warning("job %d (%s) waits: %s", job.id, job.sweep, error)
                state.not_before = self._clock.steady() + STORE_AWAY_S
            except AlreadyDone:  # the database was restored from a backup that precedes the extension
                self._end(job, "finished")
            except SweepsError as error:
                self._end(job, "failed", str(error))
            except Exception as error:
                if is_unavailable(error):
                    outage.report(error, f"job {job.id}")
                else:
                    logger.exception("job %d (%s): a step failed; trying again", job.id, job.sweep)

        state.work = self._workers.submit(run)

    # --- steps of a job, on worker threads ----------------------------------------------------------------------

    def _begin(self, job: Job) -> None:
        request, record = job.parsed_request, self._record(job)
        if record is not None and not isinstance(request, Resume | Extend):
            if not self._has_begun(job):
                self._end(job, "failed", NAME_TAKEN.format(job.sweep))
            elif record.status in jobs.ENDED:
                logger.warning(
                    "job %d (%s): its sweep has already ended; the database may have been restored from a backup",
                    job.id,
                    job.sweep,
                )
                self._end(job, record.status)
            elif record.status == "running":  # until its driver is done, or known to be dead
                self._state(job).not_before = self._clock.steady() + STORE_AWAY_S
            else:
                self._start(job, request, self._restart_commands(job))
            return
        if isinstance(request, Run):
            request = request.model_copy(update={"overrides": [*request.overrides, *_call(self.prepare, job)]})
        self._start(job, request, [self._command(request.arguments())])

    def _end_with(self, job: Job, outcome: subprocesses.Outcome) -> None:
        """End a job with the result that its process has reported."""
        document = outcome.document if isinstance(outcome.document, dict) else {}
        state = document.get("status", "finished" if outcome.status == 0 else "failed")
        state = "stopped" if state == "interrupted" else state
        state = state if outcome.error is None else "failed"
        error = outcome.error or (_limit_reached(job, job.stop_asked) if state == "stopped" else None)
        self._end(job, state, error)

    def _restart_or_end(self, job: Job) -> None:
        """Handle a job without a running process: it has ended, died, or was never started."""
        outcome = subprocesses.outcome(self.control_folder(job))
        is_to_end = job.stop_asked is not None or self._is_over(job)
        limit = _limit_reached(job, self._time.now() if job.stop_asked is None else job.stop_asked)
        if is_to_end and (outcome is None or outcome.status != 0) and self._record(job) is None:
            # Whatever its outcome, it was stopped at its start; there is nothing to resume.
            self._end(job, "cancelled", limit and limit.partition(";")[0])
        elif outcome is not None and outcome.status not in (INTERRUPTED, TRY_AGAIN):
            self._end_with(job, outcome)
        elif is_to_end:
            self._end(job, "stopped", limit)
        elif job.attempts == 0 or not self.control_folder(job).is_dir():  # perhaps restored from a backup
            self._begin(job)
        elif job.attempts <= self._limits.restarts:
            logger.warning("job %d (%s): its process has died, or did not start; it is restarted", job.id, job.sweep)
            self._start(job, job.parsed_request, self._restart_commands(job))
        elif outcome is not None and outcome.status == TRY_AGAIN:
            self._end_with(job, outcome)
        else:
            self._end(
                job,
                "failed",
                f"its process has died {job.attempts} times; `python -m sweeps resume {job.sweep}` resumes it, "
                f"if the sweep has begun. End of its log: {subprocesses.log_tail(self.control_folder(job))}",
            )

    def _adopt_if_lost(self, job: Job) -> None:
        """Take over a job of another machine that has failed."""
        if not self._detector.has_failed(job):
            return
        with writing(self._engine) as connection:
            adopted = claims.adopt(connection, job, self._heartbeat.service, self._heartbeat.host)
        if adopted is None:
            return
        self._state(job).not_before = 0.0
        folder = self.control_folder(job)
        if folder.is_dir() or job.attempts == 0:
            logger.warning("job %d (%s): its machine %s has failed; it continues here", job.id, job.sweep, job.host)
            subprocesses.release_lost_lock(folder)
            return
        record = self._record(job)
        has_ended = record is not None and record.status in jobs.ENDED
        state = record.status if record is not None and has_ended else "failed" if job.stop_asked is None else "stopped"
        reason = (
            f"its machine {job.host} has sent no heartbeat for {self._limits.lost_after_s:g} s (queue.lost_after_s), "
            "and its files cannot be read from another machine; if the machine comes back, "
            f"`python -m sweeps resume {job.sweep}` there resumes the sweep"
        )
        self._end(adopted, state, None if has_ended else reason, has_sweep=True)

    def _restart_commands(self, job: Job) -> list[list[str]]:
        """Return the commands for a job whose process has died."""
        request, folder = job.parsed_request, self._output_dir / job.sweep
        if isinstance(request, Extend):
            return [self._command(request.arguments())]
        if not self._has_sweep(job):
            # The name belongs to this job, so nobody else has made this folder.
            shutil.rmtree(folder, ignore_errors=True)
            return [self._command(request.arguments())]
        # A sweep that has begun but that MLflow has lost is recorded again from its folder, or fails with the reason.
        lost = [f"--folder={folder}"] if self._record(job) is None else []
        return [self._command(["resume", job.sweep, *lost])]

    def _start(self, job: Job, request: Request, commands: Sequence[Sequence[str]]) -> None:
        environment = {**self._environment, **_call(self.check, job)}
        with writing(self._engine) as connection:
            held = claims.begin_attempt(connection, job, self._heartbeat.service, request)
        if held is None:
            return
        sweep_folder = self._output_dir / job.sweep
        try:
            process = subprocesses.start(self.control_folder(job), commands, sweep_folder, environment)
        except OSError as error:
            if is_unavailable(error) or error.errno in SHORTAGES:  # nothing was started, and this is tried again
                self._state(job).not_before = self._clock.steady() + STORE_AWAY_S
                with writing(self._engine) as connection:
                    jobs.set_values(connection, job.id, attempts=held.attempts - 1, request=job.request)
            raise
        if process is None:
            return  # another service has just started it
        state = self._state(job)
        state.process = process
        state.silence.begin(self._clock.steady())
        with writing(self._engine) as connection:
            jobs.set_values(connection, job.id, pid=process.pid)
        logger.info("job %d (%s): %s starts as process %d", job.id, job.sweep, job.verb, process.pid)

    def _tell_to_stop(self, job: Job) -> None:
        from sweeps.driver.stop import request_stop
        from sweeps.tracking.reader import load_sweep

        self._read_ends_within_s(job, str(self._output_dir / job.sweep))  # first: MLflow may not answer
        try:
            record = load_sweep(self._uri, job.sweep)
            self._read_ends_within_s(job, record.tags.get(TAG_FOLDER, ""))
            request_stop(record)
        except SweepsError as error:
            logger.warning("job %d (%s): %s; sending SIGTERM", job.id, job.sweep, error)
            subprocesses.send(self.control_folder(job), signal.SIGTERM)

    def _read_ends_within_s(self, job: Job, location: str) -> None:
        from sweeps.plan.saved_sweep import saved_config

        with contextlib.suppress(SweepsError):  # the sweep is not there, or its file is unreadable
            self._state(job).ends_within_s = saved_config(job.sweep, location).ends_within_s

    def _end(self, job: Job, state: str, error: str | None = None, *, has_sweep: bool | None = None) -> None:
        """Record the end of a job. By default, a failed one gives up its name unless its sweep may have begun."""
        now, service = self._time.now(), self._heartbeat.service
        if has_sweep is None:
            has_sweep = state != "failed" or (self._has_begun(job) and self._may_have_sweep(job))
        with writing(self._engine) as connection:
            ended = claims.end(connection, job, service, state, now, error, has_sweep=has_sweep)
        self.wake()
        if ended is None:
            return
        logger.info("job %d (%s): %s%s", job.id, job.sweep, state, f": {error}" if error else "")
        self.when_ended(ended)

    def _command(self, arguments: Sequence[str]) -> list[str]:
        folders = [f"--config-dir={folder}" for folder in self._config_dirs]
        return [arguments[0], *folders, *arguments[1:], "--json"]

    def _record(self, job: Job) -> SweepRecord | None:
        """Return the record of the job's sweep; None if it has not begun."""
        from sweeps.tracking.reader import find_sweep

        return find_sweep(self._uri, job.sweep)

    def _has_sweep(self, job: Job) -> bool:
        """Whether the job's sweep has begun: its folder or its record shows that."""
        from sweeps.plan.unstarted import is_unstarted

        folder = self._output_dir / job.sweep
        return (folder.exists() and not is_unstarted(folder)) or self._record(job) is not None

    def _may_have_sweep(self, job: Job) -> bool:
        """Whether the job's sweep may have begun; true also if MLflow does not answer or the files cannot be read, so
        that the job can end."""
        try:
            return self._has_sweep(job)
        except (SweepsError, OSError):
            return True


def _limit_reached(job: Job, asked: float | None) -> str | None:
    """Return the message that a job reached its time limit; None unless it was asked to stop at its deadline or
    later."""
    if job.end_by is None or asked is None or asked < job.end_by:
        return None
    hours = "" if job.started is None else f", {(job.end_by - job.started) / 3600:.3g} h after its start"
    return (
        f"its time limit was reached{hours} (queue.max_hours, max_hours or the window of its schedule); "
        f"`python -m sweeps resume {job.sweep}` continues it"
    )


def _sweep_environment(config: Service) -> dict[str, str]:
    """Return this process's environment without the service's secrets and notification addresses: the service, not its
    sweeps, sends notifications."""
    hidden = {VARIABLE, VARIABLES["database"], *(channel.url_env for channel in config.notifications)}
    return {name: value for name, value in os.environ.items() if name not in hidden}


def _call(function: Callable[[Job], T], job: Job) -> T:
    """Call a function before a start; its unexpected errors fail the job."""
    try:
        return function(job)
    except SweepsError:
        raise
    except Exception as error:
        if is_unavailable(error):
            raise  # the job is tried again later
        logger.exception("job %d (%s) cannot start", job.id, job.sweep)
        raise SweepsError(f"preparing its start failed: {error!r}") from error
