"""State machine of one attempt at a trial, from its assignment to a worker group to the end of the workers.

    STARTING --a worker posts--> TRAINING --all workers finish, fail or hang--> ENDED
        \\_____________________________ the same, before training ______________/

A request to stop may come in every phase, and only grows: NONE -> AT_CHECKPOINT -> SAVE -> DISCARD. Workers learn of it
at their next report; the end of an attempt implies it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum, IntEnum
from typing import Any

from sweeps.runtime.answers import Answer, Outcome
from sweeps.runtime.events import Ended, Event, Log, Note, Report, Started, Waiting
from sweeps.runtime.native_stacks import explained
from sweeps.tracking.values import now_ms
from sweeps.worker_error import FROM_OUTSIDE, LONGEST_MESSAGE, WorkerError, root_cause

START_WITHIN_S = 600.0
"""Maximum seconds for workers to begin a trial, since a machine may be busy."""


class Phase(Enum):
    """Progress of an attempt's workers."""

    STARTING = "starting"
    """The worker group is starting, or has not begun the trial."""
    TRAINING = "training"
    """A worker has posted something."""
    ENDED = "ended"
    """The workers have finished the trial, or are gone."""


class StopRequest(IntEnum):
    """Request to an attempt's workers, in ascending order: a higher request replaces a lower one."""

    NONE = 0
    AT_CHECKPOINT = 1
    """Return at the next report with a checkpoint."""
    SAVE = 2
    """Save a checkpoint at the next report and return."""
    DISCARD = 3
    """Return immediately: the trial is over, or another attempt replaces this one."""


class Silence:
    """Time since a trial's workers last posted something or last received a decision for which they waited."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def end(self, *, counts: bool) -> None:
        """End this silence and begin to time the next one. Unless it ``counts``, it cannot become the longest."""
        if counts:
            self.longest_s = max(self.longest_s, self.seconds)
        self._began = time.monotonic()


class Attempt:
    """One attempt at a trial, as the broker knows it."""

    def __init__(
        self,
        trial: str,
        number: int,
        publish: Callable[[Event], None],
        *,
        failures: int = 0,
        delivered: int | None = None,
        saves_when_asked: bool = True,
    ) -> None:
        """
        Args:
            trial: Number of the trial, as text.
            number: Number of the attempt, from 1.
            publish: Passes an event on to the driver.
            failures: Number of the trial's earlier failed attempts.
            delivered: Step of the last report of earlier attempts; None if there was none.
            saves_when_asked: Whether its training saves a checkpoint when asked to stop, unlike a user's function.
        """
        self.trial, self.number, self._earlier_failures = trial, number, failures
        self.phase, self.stop = Phase.STARTING, StopRequest.NONE
        self.delivered = delivered
        """Step of the last report of this attempt and earlier ones; None if there was none."""
        self.slot = self.log_folder = ""
        self.end: Ended | None = None
        self.errors: dict[tuple[int, bool], WorkerError] = {}
        """Errors by rank and by whether the worker was lost, in order of arrival; a worker that reported its error may
        be lost afterwards."""
        self._publish = publish
        self._moves: str | None = None
        """Reason why the trial will continue with other workers."""
        self._assigned_ms = 0
        self._memory_mib: dict[int, float] = {}
        """Memory of each finished worker after the trial, by rank."""
        self._saved_step: int | None = None
        """Step of the trial's newest checkpoint when its workers finished; None if there is none."""
        self._silence = Silence()
        self._has_waited, self._began = False, time.monotonic()
        self._stop_requested = {request: asyncio.Event() for request in StopRequest}
        self._has_ended = asyncio.Event()
        self._saves_when_asked, self._has_checkpoint = saves_when_asked, False
        self._first_log: Log | None = None
        self._last_log: Log | None = None
        self._result: Mapping[str, Any] = {}
        """The trial's newest report in Tune's form, if the actor returns."""
        self._tries_again: bool | None = None
        """Whether a failed attempt is followed by another one."""
        self._unanswered = 0
        """Number of reports and ends that the driver has not answered yet."""
        self._needs_answers = True
        self.is_cut_off = False
        """Whether the driver may not have received all events of this attempt."""
        self._returns: deque[Answer] = deque()
        """Answers that the trial's actor has not received yet."""
        self._answered, self._decided = asyncio.Event(), asyncio.Event()

    # --- transitions ------------------------------------------------------------------------------------------

    def assign(self, slot: str, log_folder: str) -> None:
        """Record the slot to which the attempt is given, and the folder of its workers' logs. If the attempt waited for
        another slot's workers before, their errors and the waiting time are discarded."""
        self.slot, self.log_folder, self._assigned_ms = slot, log_folder, now_ms()
        self.errors.clear()
        self._began = time.monotonic()
        self._silence.end(counts=False)

    def post(self, event: Log | Note | Report | Started, locations: tuple[str, ...]) -> None:
        """Process an event of a worker: STARTING -> TRAINING.

        Args:
            event: Event that a worker has posted.
            locations: ``host`` or ``host/gpu`` of each worker, by rank.
        """
        self._silence.end(counts=self.phase is Phase.TRAINING)
        if isinstance(event, Report):
            self._has_checkpoint = self._has_checkpoint or event.checkpoint is not None
            self.delivered = max(event.step, self.delivered or 0)  # earlier ones may be posted again
            self._unanswered += self._needs_answers
            if self._needs_answers and self.stop < StopRequest.SAVE:
                self._decided.clear()
            if event.done:
                self._moves = None
        if self.phase is Phase.STARTING:
            self.phase = Phase.TRAINING
        if isinstance(event, Log) and event.metrics:
            self._first_log, self._last_log = self._first_log or event, event
        if isinstance(event, Started):
            event = replace(event, assigned_ms=self._assigned_ms, workers=locations)
        self._publish(event)

    def answer(self, answer: Answer) -> None:
        """Apply the driver's answer to a report or to the attempt's end."""
        self._unanswered = max(0, self._unanswered - 1)
        self._result = answer.result or self._result
        if answer.tries_again is not None:  # else it answers a report that came after the end
            self._tries_again = answer.tries_again
        if answer.returns:  # a paused trial's workers leave, too: nobody knows when it continues, and where
            self.request_stop(StopRequest.DISCARD if answer.stops else StopRequest.SAVE)
            self._returns.append(answer)
        elif not self._unanswered:
            if not self._decided.is_set():
                self._silence.end(counts=False)  # the workers may have been silent because they waited for this
            self._decided.set()
        self._answered.set()

    def stop_waiting_for_answers(self) -> None:
        """Stop waiting for answers: the driver records nothing further."""
        self._needs_answers, self._unanswered = False, 0
        self._decided.set()
        self._answered.set()

    def cut_off(self, asked: int, reason: str) -> None:
        """Stop waiting for answers that were lost with the connection to the driver. If the attempt has ended without
        an error, the trial continues from its end: the driver may not know its last report.

        Args:
            asked: Number of reports and ends that the driver has not received yet and will still answer.
            reason: Reason for the user.
        """
        if self.end is None:
            self.move(reason)
        elif self.end.error is None and self._unanswered > asked:
            self.end = replace(self.end, moved=reason)
        self.is_cut_off, self._unanswered = True, asked
        self._answered.set()

    def alive(self) -> None:
        """Record a sign of life of a worker that posts nothing, as while it prepares data and model."""
        self._silence.end(counts=False)

    def was_stopped(self, seconds: float) -> None:
        """Exclude a time in which the broker's process, and perhaps the workers, were stopped."""
        self._began += seconds
        self._silence.end(counts=False)

    def waits_for_room(self) -> None:
        """Record that the attempt's workers wait for free resources, which does not count as silence."""
        self._silence.end(counts=False)
        if not self._has_waited:
            self._has_waited = True
            self._publish(Waiting(self.trial, self.number))

    @property
    def finished(self) -> list[int]:
        """Ranks of the workers that have finished with the trial."""
        return sorted(self._memory_mib)

    def worker_finished(self, rank: int, num_workers: int, memory_mib: float, saved_step: int | None = None) -> None:
        """Count a worker that has finished with the trial; the attempt ends with the last one."""
        self._memory_mib[rank] = memory_mib
        self._saved_step = saved_step if rank == 0 else self._saved_step
        if len(self._memory_mib) == num_workers:
            memory = tuple(self._memory_mib[each] for each in range(num_workers))
            self.finish(Ended(self.trial, self.number, saved_step=self._saved_step, memory_mib=memory))

    def add_error(self, error: WorkerError) -> None:
        """Add a worker's error, unless the worker has already reported a similar one."""
        self.errors.setdefault((error.rank, error.kind == "lost"), error)

    def finish(self, event: Ended) -> Ended:
        """End the attempt: STARTING or TRAINING -> ENDED.

        Returns:
            The end that counts, which is the first one.
        """
        if self.end is None:
            self.phase = Phase.ENDED
            self.end = replace(event, moved=self.reason_to_move(event), timestamp_ms=now_ms())
            self._unanswered += self._needs_answers
            self.request_stop(StopRequest.SAVE)
            self._has_ended.set()
            self._answered.set()
            self._publish(self.end)
        return self.end

    def reason_to_move(self, end: Ended) -> str | None:
        """Return the reason to continue the trial on other workers instead of counting this end as a failure; None if
        there is none."""
        if end.error is None or end.moved is not None:
            return end.moved or self._moves
        taken = [each.message for each in causes(end) if each.node_was_taken]
        if self._moves is None and taken:
            return taken[0]
        return self._moves if end.failure is None or may_be_the_nodes(end) else None

    def move(self, reason: str, *, in_time: bool = True) -> None:
        """Ask the workers to save a checkpoint and stop, so that the trial continues on other workers; the loss of a
        worker in the meantime is no failure.

        Args:
            reason: Reason for the user.
            in_time: Whether these workers are about to end. A training that cannot save when asked then stops at its
                next report; otherwise it stops at its next checkpoint.
        """
        waits = not in_time and not self._saves_when_asked
        request = StopRequest.AT_CHECKPOINT if waits else StopRequest.SAVE
        if self.stop < request:
            self.request_stop(request)
            self._moves = reason
            saves = "after its next checkpoint it" if waits else "it saves a checkpoint and"
            text = f"{reason}; {saves} continues on other workers, which does not count as a failure"
            self._publish(Note(self.trial, self.number, text))

    @property
    def may_change_workers(self) -> bool:
        """Whether the trial could continue on other workers after its next checkpoint without losing work."""
        asked = self.stop is not StopRequest.NONE or self.phase is not Phase.TRAINING
        return not asked and self.pace() is not None and (self._saves_when_asked or self._has_checkpoint)

    @property
    def is_moving(self) -> bool:
        """Whether the trial is about to continue on other workers."""
        return self._moves is not None

    @property
    def failures(self) -> int:
        """Number of the trial's failed attempts so far."""
        return self._earlier_failures + (self.end is not None and self.end.is_failure)

    def request_stop(self, request: StopRequest) -> None:
        """Ask the workers to stop, for good or until the next attempt."""
        self.stop, self._moves = max(self.stop, request), None
        for each in StopRequest:
            if each <= self.stop:
                self._stop_requested[each].set()
        if self.stop >= StopRequest.SAVE:
            self._decided.set()

    def pace(self) -> tuple[int, float] | None:
        """Return the newest step and the seconds per step in this attempt; None before its second log."""
        first, last = self._first_log, self._last_log
        if first is None or last is None or last.step <= first.step:
            return None
        return last.step, self.trained_s / (last.step - first.step)

    @property
    def trained_s(self) -> float:
        """Seconds from the first log of this attempt to the last one."""
        first, last = self._first_log, self._last_log
        return 0.0 if first is None or last is None else (last.timestamp_ms - first.timestamp_ms) / 1000

    # --- waiting ----------------------------------------------------------------------------------------------

    async def next_outcome(self, timeout_s: float) -> Outcome:
        """Wait for the driver's decision or the attempt's end, which the trial's actor passes on to Tune. The driver
        has recorded all earlier events by then.

        Raises:
            TimeoutError: There was no outcome in time.
        """
        async with asyncio.timeout(timeout_s):
            while True:
                if self._returns:
                    answer = self._returns.popleft()
                    return Outcome(answer.result, error=answer.error, tries_again=answer.tries_again)
                if self.end is not None and not self._unanswered:
                    return Outcome(self._result, self.end, tries_again=self._tries_again)
                self._answered.clear()
                await self._answered.wait()

    async def wait_for_decision(self) -> None:
        """Return when the driver has decided that the trial continues after its last report, or the attempt is asked to
        stop."""
        await self._decided.wait()

    @property
    def silent_s(self) -> float:
        """Seconds since the workers' last event, whether or not a report waits for the driver."""
        return self._silence.seconds

    def silence(self, hang_timeout_s: float, start_timeout_s: float = 0.0) -> tuple[float, float]:
        """Return the seconds since the workers' last event, and the allowed maximum in this phase; infinite while a
        report waits for the driver."""
        if self._unanswered or self._returns or self.phase is Phase.ENDED:
            return 0.0, math.inf
        if self.phase is Phase.TRAINING:
            return self._silence.seconds, hang_timeout_s
        waited_s = time.monotonic() - self._began if start_timeout_s else self._silence.seconds
        return waited_s, max(hang_timeout_s, START_WITHIN_S, start_timeout_s)

    async def wait_for_stop(self, above: StopRequest = StopRequest.NONE) -> StopRequest:
        """Wait for a stop request higher than ``above``, which the workers know; may never return."""
        await self._stop_requested[StopRequest(above + 1)].wait()
        return self.stop

    async def wait_for_end(self, timeout_s: float, *, is_patient: bool = True) -> Ended | None:
        """Return the attempt's end; None if it takes longer than ``timeout_s``. If ``is_patient``, the limit is at
        least three times the workers' longest silence."""
        longest_s = max(timeout_s, 3 * self._silence.longest_s) if is_patient else timeout_s
        try:
            await asyncio.wait_for(self._has_ended.wait(), longest_s)
        except TimeoutError:
            return None
        return self.end


def causes(end: Ended) -> list[WorkerError]:
    return [each for each in (end.failure, *end.others) if each is not None]


def may_be_the_nodes(end: Ended) -> bool:
    """Whether a bad node may have caused an attempt's failure: a worker was lost or hung, or an operation of a device,
    the network or a disk failed."""
    if end.error is None or end.halved_to is not None:
        return False
    if any(each.kind in ("lost", "peer", "hang") for each in causes(end)):
        return True
    return any(FROM_OUTSIDE.search(each.message[:LONGEST_MESSAGE]) for each in causes(end))


def with_errors(event: Ended, errors: list[WorkerError], log_folder: str) -> Ended:
    """Return an attempt's end, completed with the error that caused it and the errors of the other workers.

    Args:
        event: End as the slot reported it.
        errors: Errors that workers have reported, in order of arrival.
        log_folder: Folder of the trial's logs, which may explain why a worker was lost.
    """
    if event.error is None or event.halved_to is not None:
        return event
    known = {(each.rank, each.kind == "lost") for each in errors}
    errors += [each for each in event.others if (each.rank, each.kind == "lost") not in known]
    errors = [explained(each, log_folder) if each.kind == "lost" else each for each in errors]
    cause = root_cause(errors)
    if cause is None:
        return event
    others = tuple(each for each in errors if each is not cause)
    return replace(event, error=cause.described, failure=cause, others=others)
