"""The one channel between the workers of all slots, the trials' Tune actors, and the sweep's driver.

A trial's actor gives its slot an assignment and waits for the next report; workers wait for assignments, post what
they measure and do not wait for an answer, unless the scheduler may pause them at a report; the driver drains
everything into tracking and the live table; a wish to stop travels the other way. An asynchronous Ray actor: waiting
costs nothing, and nobody polls.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

import ray

from sweeps.runtime.checkpoint_layout import Origin
from sweeps.runtime.native_stacks import ask_for_stacks, explained, hang
from sweeps.worker_error import WorkerError, root_cause


@dataclass(frozen=True)
class Log:
    """Training metrics at a step; they go to tracking alone."""

    trial: str
    attempt: int
    step: int
    metrics: dict[str, float]
    timestamp_ms: int


@dataclass(frozen=True)
class Report(Log):
    """An evaluation: it goes to the scheduler and the sampler, too."""

    progress: dict[str, float] = field(default_factory=dict)
    """``steps, epochs, samples, tokens, seconds`` done, as far as the training counts them."""
    checkpoint: str | None = None
    """Folder of a complete checkpoint of this step."""
    held: str | None = None
    """The same files, kept for MLflow when the training has superseded them."""
    done: bool = False
    """The training reached its end."""


@dataclass(frozen=True)
class Ended:
    """A trial's workers are done with it, or gone."""

    trial: str
    attempt: int
    error: str | None = None
    """Why, if they failed."""
    failure: WorkerError | None = None
    """The error of the worker that caused it."""
    others: tuple[WorkerError, ...] = ()
    """The errors of the other workers, in the order in which they came."""
    halved_to: int | None = None
    """If a device ran out of memory where workers wait for each other: the micro batch to go on with."""
    memory_mib: tuple[float, ...] = ()
    """Memory of every worker and on its GPU, by rank, as they were left."""
    timestamp_ms: int = 0
    """The mailbox's own: when it heard of it."""


@dataclass(frozen=True)
class Started:
    """A trial's workers have begun to train, or to train again."""

    trial: str
    attempt: int
    timestamp_ms: int
    origin: Origin | None = None
    """Where the trial goes on from, if it has taken over another one's state."""
    assigned_ms: int = 0
    """The mailbox's own: when the slot was given the trial."""
    workers: tuple[str, ...] = ()
    """The mailbox's own: the place of each worker, by rank."""


@dataclass(frozen=True)
class Note:
    """Something about a trial that a person should know, in a line."""

    trial: str
    attempt: int
    text: str


Event = Log | Report | Ended | Started | Note

START_WITHIN_S = 600.0
"""Seconds that workers have to begin a trial."""
STACKS_WITHIN_S = 15.0
"""Seconds in which workers that hang are asked where they are."""
STACKS_WRITTEN_S = 0.5
"""Seconds that the stacks take to their file."""
IDLE_S = 2.0
"""Seconds that a slot waits for a paused or failed trial, once there are no new ones."""


@dataclass
class _Box:
    """What is known of one trial's current attempt."""

    attempt: int = 0
    slot: str = ""
    logs: str = ""
    """Folder of the trial's logs."""
    assigned_ms: int = 0
    reports: asyncio.Queue[Report | Ended] = field(default_factory=asyncio.Queue)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    decided: asyncio.Event = field(default_factory=asyncio.Event)
    """Tune has asked for the report after the last one that was posted, or the trial is to stop."""
    asked: int = 0
    """Reports that Tune has asked for."""
    posted: int = 0
    """Reports that the workers have posted."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    end: Ended | None = None
    left_mib: dict[int, float] = field(default_factory=dict)
    """Memory by rank of the workers that are done with it."""
    errors: dict[tuple[int, bool], WorkerError] = field(default_factory=dict)
    """By rank and whether it was lost, in the order in which they came."""
    started: bool = False
    """The workers have begun to train."""
    heard: float = field(default_factory=time.monotonic)
    """When the workers last posted something, or when they were asked for."""
    longest_silence: float = 0.0
    handed: int | None = None
    """Step of the last report that Tune was given; None if it was given none."""
    judged: bool = False
    """The scheduler may stop the trial at a report while it trains on."""
    held: list[tuple[int, Event]] = field(default_factory=list)
    """Records that came after a report that Tune has not decided on, each with the number of that report: they are no
    part of the trial if it is to stop there."""
    discards: bool = False
    """The trial is over for Tune: what its workers still post, before they notice, is no part of it."""

    def halt(self) -> None:
        self.stop.set()
        self.decided.set()


@dataclass
class _SlotBox:
    """What is known of one slot."""

    assignments: list[Any] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    closed: bool = False
    idle: asyncio.Task[None] | None = None
    """Closes it, unless it gets a trial."""
    handles: dict[str, Any] = field(default_factory=dict)

    def expects_trial(self) -> None:
        if self.idle is not None:
            self.idle.cancel()


class Mailbox:
    """See the module. Every method is called through a Ray actor handle."""

    def __init__(self) -> None:
        self._boxes: dict[str, _Box] = defaultdict(_Box)
        self._slots: dict[str, _SlotBox] = defaultdict(_SlotBox)
        self._events: list[Event] = []
        self._arrived = asyncio.Event()
        self._stopping = False
        self._unwanted: set[str] = set()
        """Trials that a person has ended."""
        self._search_over = asyncio.Event()

    # --- a trial's actor ---------------------------------------------------------------------------------

    async def begin(self, trial: str, judged: bool = False) -> tuple[int, int | None]:
        """A trial is about to be started.

        Args:
            trial: Its number.
            judged: Whether the scheduler may stop it at a report while it trains on.

        Returns:
            The number of this attempt, from 1, and the step of the last report that Tune was given by the one before.
        """
        box = self._boxes[trial]
        # What is left of an earlier attempt must not save into the folder that this one starts from.
        box.discards = True
        box.halt()
        self._boxes[trial] = _Box(attempt=box.attempt + 1, judged=judged, handed=box.handed)
        if self._stopping or trial in self._unwanted:
            self._boxes[trial].halt()
        return box.attempt + 1, box.handed

    async def next_report(self, trial: str, silence_s: float) -> Report | Ended:
        """Waits for the trial's next report, or for its end: workers that train and say nothing at all for
        ``silence_s`` count as ended by a hang. Those that have not begun may take longer, on a busy machine."""
        box = self._boxes[trial]
        box.asked += 1
        if box.asked > box.posted and not box.decided.is_set():
            box.heard = time.monotonic()  # if they were silent, they waited for this
            box.decided.set()
        self._let_go(box)
        while True:
            silent = time.monotonic() - box.heard
            allowed = silence_s if box.started else max(silence_s, START_WITHIN_S)
            if silent >= allowed:
                what = "its workers hang" if box.started else "its workers do not start; are their resources taken?"
                end = await self._hang(box, Ended(trial, box.attempt, f"no report for {silent:.0f} s: {what}"))
                self._end(box, end)
                return end
            try:
                event = await asyncio.wait_for(box.reports.get(), min(allowed - silent, silence_s))
            except TimeoutError:
                continue  # something else may have been posted meanwhile
            if isinstance(event, Report):
                box.handed = event.step
            return event

    async def ended(self, event: Ended) -> None:
        """The trial's workers are done with it, or gone; the first who says so is right."""
        box = self._boxes[event.trial]
        if event.attempt == box.attempt and box.end is None:
            event = _with_errors(event, list(box.errors.values()), box.logs)
            box.reports.put_nowait(event)
            self._end(box, event)

    async def _hang(self, box: _Box, event: Ended) -> Ended:
        """With where the workers are, as far as that can be learned from them."""
        handles = self._slots[box.slot].handles
        if not (processes := handles.get("processes")):
            return event
        with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
            await asyncio.wait_for(asyncio.gather(*ask_for_stacks(processes)), STACKS_WITHIN_S)
            await asyncio.sleep(STACKS_WRITTEN_S)
        told = hang(str(event.error), processes, handles.get("places", ()), box.logs)
        return replace(event, error=told.described, failure=told)

    async def failed(self, trial: str, attempt: int, error: WorkerError) -> None:
        """A worker of a trial has failed. The trial ends when its slot says so: other workers may have more to say."""
        box = self._boxes[trial]
        if attempt == box.attempt:
            key = error.rank, error.kind == "lost"  # it may have told of its error, and then died of it
            box.errors.setdefault(key, error)

    async def unexplained(self, slot: str) -> tuple[str, int] | None:
        """The trial of a slot, and its attempt, if workers have lost the connection to one that has said nothing."""
        for trial, box in self._boxes.items():
            if box.slot == slot and box.end is None and box.errors:
                is_known = any(each.kind != "peer" for each in box.errors.values())
                return None if is_known else (trial, box.attempt)
        return None

    async def wait_ended(self, trial: str, attempt: int, timeout_s: float) -> Ended | None:
        """Waits until the workers are done with an attempt; None if that takes too long: longer than ``timeout_s``
        and than three times their longest silence so far, or if the attempt was given up for a later one."""
        box = self._boxes[trial]
        if attempt != box.attempt:
            return None
        try:
            await asyncio.wait_for(box.ended.wait(), max(timeout_s, 3 * box.longest_silence))
        except TimeoutError:
            return None
        return box.end

    async def assign(self, slot: str, assignment: Any) -> None:
        """Give a slot its next trial."""
        box = self._slots[slot]
        box.expects_trial()
        trial = self._boxes[assignment.trial]
        trial.slot, trial.logs, trial.assigned_ms = slot, assignment.log_folder, _now_ms()
        async with box.changed:
            box.assignments.append(assignment)
            box.changed.notify_all()

    async def reserve(self, slot: str) -> bool:
        """Keep a slot for the trial that it is given next; False if it is being given back."""
        box = self._slots[slot]
        box.expects_trial()
        return not box.closed

    async def close_slot(self, slot: str) -> None:
        """No more trials for a slot: its workers return."""
        box = self._slots[slot]
        async with box.changed:
            box.closed = True
            box.changed.notify_all()

    async def forget_slot(self, slot: str) -> None:
        """Its workers are gone."""
        self._slots.pop(slot, None)

    async def handles(self, slot: str) -> dict[str, Any]:
        """The controller, placement group and workers of a slot, as far as they have started."""
        return self._slots[slot].handles

    # --- a slot's workers and their controller -----------------------------------------------------------

    async def slot_started(self, slot: str, handles: dict[str, Any]) -> None:
        self._slots[slot].handles |= handles

    async def next_assignment(self, slot: str, index: int) -> Any:
        """Waits for a slot's assignment of this number, from 0; None when there will be none.

        Every worker of the slot asks for itself, so that an idle slot holds no collective open.
        """
        box = self._slots[slot]
        if index and index == len(box.assignments) and (box.idle is None or box.idle.done()):
            box.idle = asyncio.create_task(self._give_back(slot))
        async with box.changed:
            await box.changed.wait_for(lambda: box.closed or index < len(box.assignments))
        if index >= len(box.assignments):
            return None
        assignment = box.assignments[index]
        if index:
            box.assignments[index - 1] = None  # nobody will ask for it again
        return assignment

    async def _give_back(self, slot: str) -> None:
        """Tune may keep the actor of a trial that has ended, and with it a slot, for a trial that never comes."""
        await self._search_over.wait()
        await asyncio.sleep(IDLE_S)
        await self.close_slot(slot)

    async def post(self, event: Log | Note | Report | Started) -> None:
        """What rank 0 has to say; events of an attempt that was given up are dropped."""
        box = self._boxes[event.trial]
        if event.attempt != box.attempt or box.discards:
            return
        now = time.monotonic()
        if box.started:
            box.longest_silence = max(box.longest_silence, now - box.heard)
        box.started, box.heard = True, now
        if isinstance(event, Started):
            places = self._slots[box.slot].handles.get("places", ())
            event = replace(event, assigned_ms=box.assigned_ms, workers=places)
        undecided = box.judged and box.posted >= max(box.asked, 1)
        if undecided or box.held:
            box.held.append((box.posted, event))
        else:
            self._publish(event)
        if isinstance(event, Report):
            box.posted += 1
            if box.asked <= box.posted and not box.stop.is_set():
                box.decided.clear()  # until it is asked for the next one, or told to stop
            box.reports.put_nowait(event)

    def _let_go(self, box: _Box) -> None:
        """Tune has decided that the trial goes on after all reports before the one that it asks for."""
        while box.held and box.held[0][0] < box.asked:
            self._publish(box.held.pop(0)[1])

    async def left(self, trial: str, attempt: int, rank: int, num_workers: int, memory_mib: float) -> None:
        """A worker is done with a trial, which has ended when all of them are."""
        box = self._boxes[trial]
        if attempt != box.attempt:
            return
        box.left_mib[rank] = memory_mib
        if len(box.left_mib) == num_workers:
            of_all = tuple(box.left_mib[each] for each in range(num_workers))
            await self.ended(Ended(trial, attempt, memory_mib=of_all))

    async def post_all(self, events: list[Log]) -> None:
        """As ``post``, of several events in their order."""
        for event in events:
            await self.post(event)

    async def post_and_wait(self, report: Report) -> None:
        """As ``post``, but returns when Tune has decided on the report: that the trial goes on, or stops."""
        await self.post(report)
        box = self._boxes[report.trial]
        if report.attempt == box.attempt and not report.done:
            await box.decided.wait()

    async def stop_requested(self, trial: str, attempt: int) -> bool:
        """Returns when the trial should stop, which may be never: at once (True), or after it has saved (False)."""
        box = self._boxes[trial]
        if attempt != box.attempt:
            return True
        await box.stop.wait()
        return box.discards

    # --- the driver --------------------------------------------------------------------------------------

    async def stop(self, trial: str, attempt: int | None = None, discard: bool = False) -> None:
        """Ask a trial to stop at its next boundary: after a last checkpoint, or (``discard``) at once, as it is over
        for good and what it posts until then is dropped. With ``attempt``: if it is still at that one."""
        box = self._boxes.get(trial)
        if box is not None and attempt in (None, box.attempt):
            box.discards = box.discards or discard
            if discard:
                box.held.clear()
            box.halt()

    async def stop_for_good(self, trial: str) -> None:
        """As ``stop``, after a last checkpoint, also in the attempts to come: it may be paused."""
        self._unwanted.add(trial)
        await self.stop(trial)

    async def stop_all(self) -> None:
        """Ask every trial, also those to come, to stop at the next boundary."""
        self._stopping = True
        for box in self._boxes.values():
            box.halt()

    async def go_on(self) -> None:
        """Trials to come need not stop any more."""
        self._stopping = False

    async def search_over(self, over: bool) -> None:
        """Whether the search starts no further trials: slots that stay without one are then given back."""
        if over:
            self._search_over.set()
        else:
            self._search_over.clear()

    async def drain(self, timeout_s: float) -> list[Event]:
        """All events since the last call; waits for the first one, but not longer than ``timeout_s``."""
        try:
            await asyncio.wait_for(self._arrived.wait(), timeout_s)
        except TimeoutError:
            return []
        events, self._events = self._events, []
        self._arrived.clear()
        return events

    def _end(self, box: _Box, event: Ended) -> None:
        event = replace(event, timestamp_ms=_now_ms())
        box.end = event
        box.halt()
        box.ended.set()
        self._publish(event)

    def _publish(self, event: Event) -> None:
        self._events.append(event)
        self._arrived.set()


def _with_errors(event: Ended, errors: list[WorkerError], logs: str) -> Ended:
    """The end of a trial with what its workers have said of it themselves."""
    if event.error is None or event.halved_to is not None:
        return event
    known = {(each.rank, each.kind == "lost") for each in errors}
    errors += [each for each in event.others if (each.rank, each.kind == "lost") not in known]
    errors = [explained(each, logs) if each.kind == "lost" else each for each in errors]
    cause = root_cause(errors)
    if cause is None:
        return event
    others = tuple(each for each in errors if each is not cause)
    return replace(event, error=cause.described, failure=cause, others=others)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def open_mailbox() -> Any:
    """Starts the actor, which takes nothing that workers could use and ends with the driver."""
    actor: Any = ray.remote(Mailbox)
    return actor.options(num_cpus=0, max_concurrency=10_000).remote()
