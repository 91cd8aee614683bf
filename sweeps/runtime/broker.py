"""The broker: the only channel between the workers of all slots, the trials' Tune actors, and the sweep's driver.

A trial's actor gives its slot an assignment and waits for the outcome; workers wait for assignments and post events,
without waiting for an answer unless the scheduler may pause them at a report; the driver drains all events, records
them, and answers reports by its decisions; requests to stop travel the other way. It is an asynchronous Ray actor, so
that many calls can wait at once without polling. The state of each trial is in ``attempt``.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from sweeps.runtime.answers import Answer, Outcome
from sweeps.runtime.attachment import Begun, NotAttached, Told, TrialSoFar
from sweeps.runtime.attempt import Attempt, Phase, StopRequest, may_be_the_nodes, with_errors
from sweeps.runtime.elastic import ElasticWorkers
from sweeps.runtime.events import Ended, Event, Log, Note, Report, Started
from sweeps.runtime.hang import hang_end
from sweeps.runtime.lane_assignment import LEAVES_WITHIN_S, SharedSlots, StartGroup, is_workers_death
from sweeps.runtime.slot_queue import StartedGroup
from sweeps.runtime.spare_processes import Place, ProcessOrigin, SpareProcesses
from sweeps.runtime.suspected_nodes import SuspectedNodes
from sweeps.runtime.trials_at_once import Workers
from sweeps.worker_error import WorkerError

CUT_OFF = "the driver had lost the connection to the sweep's broker"
"""Reason for which trials move when the driver attaches to a process that has not died."""
CHECKED_WITHIN_S = 180.0
"""Maximum seconds that a failed trial waits for the check of its nodes."""
SLICE_S = 30.0
"""Maximum seconds to wait for an outcome at a time, so that a time in which this process was stopped is noticed."""
LATE_S = 10.0
"""Delay in seconds from which this process was stopped, as in a paused container, and perhaps the workers with it."""


class Broker(SharedSlots):
    """The only channel between workers, trials' Tune actors and the driver; see the module. Every method is called
    through a Ray actor handle."""

    def __init__(self, *, is_new: bool = True, start_group: StartGroup | None = None) -> None:
        """
        Args:
            is_new: False for a broker that replaces one whose process died.
            start_group: Starts the worker group of a slot with lanes; None: there are no lanes.
        """
        super().__init__(start_group)
        self._attached = asyncio.Event()
        """Set unless the driver still has to send the state of the previous process."""
        if is_new:
            self._attached.set()
        self._before: dict[str, TrialSoFar] = {}
        """Trials of the broker's previous process, as the driver reported them; each stays until its workers have
        posted the lost events again."""
        self._events: list[Event] = []
        self._arrived = asyncio.Event()
        self._stops_all = False
        self._is_answered = True
        """Whether the driver still answers reports and ends."""
        self._stopped_by_user: set[str] = set()
        self._avoided: Mapping[str | None, tuple[str, ...]] = {}
        self._leaving: Mapping[str, str] = {}
        """Nodes that will leave the cluster, and the announcement for each."""
        self._checks_nodes = False
        self._suspects = SuspectedNodes()
        self._spares = SpareProcesses()
        self._elastic = ElasticWorkers(self._attempts, self._slots, self._spares, self._is_to_stop)

    # --- called by a trial's Tune actor -------------------------------------------------------------------

    async def begin(
        self,
        trial: str,
        saves_when_asked: bool = True,
        lost: Ended | None = None,
    ) -> Begun:
        """Begin a new attempt at a trial.

        Args:
            saves_when_asked: See ``Attempt``.
            lost: End of the previous attempt, if the broker's process died during it.
        """
        await self._attached.wait()
        earlier = self._before.get(trial, TrialSoFar() if lost is not None else None)
        number, failures = (earlier.attempt, earlier.failures) if earlier is not None else (0, 0)
        delivered = None
        if lost is not None:
            number = max(number, lost.attempt)
            self._publish(lost)
        before = self._attempts.get(trial)
        if before is not None:
            # The earlier attempt's workers must not save into the folder from which this one starts, or remove the
            # node's copy of it. If their actor has died, they die with it, except in a lane.
            is_leaving = before.stop >= StopRequest.SAVE
            before.request_stop(StopRequest.DISCARD)
            await self.leave_lane(trial, before.number, LEAVES_WITHIN_S)
            if is_leaving:
                await before.wait_for_end(LEAVES_WITHIN_S, is_patient=False)
            number, failures, delivered = before.number, before.failures, before.delivered
        attempt = Attempt(
            trial,
            number + 1,
            self._publish,
            failures=failures,
            delivered=delivered,
            saves_when_asked=saves_when_asked,
        )
        self._attempts[trial] = attempt
        self._elastic.began(trial)
        if self._is_to_stop(trial):
            attempt.request_stop(StopRequest.SAVE)
        if not self._is_answered:
            attempt.stop_waiting_for_answers()
        return Begun(attempt.number, delivered, None if earlier is None else earlier.step)

    async def claim_workers(
        self, trial: str, numbers: Sequence[int], total_steps: int | None, previous: str | None
    ) -> int:
        """Wait until an elastic trial can begin; see ``ElasticWorkers.claim``."""
        return await self._elastic.claim(trial, numbers, total_steps, previous)

    async def release_workers(self, trial: str) -> None:
        """Free the workers of an elastic trial for other trials."""
        self._elastic.release(trial)

    async def abandon_workers(self, trial: str) -> None:
        """Free the workers of an elastic trial whose actor has died for good."""
        self._elastic.abandon(trial)

    async def next_outcome(self, trial: str, hang_timeout_s: float, start_timeout_s: float = 0.0) -> Outcome | None:
        """Wait for the next outcome that the trial's actor passes on to Tune; see ``Attempt.next_outcome``. Workers
        that post nothing for ``hang_timeout_s`` count as hanging; those that have not begun get longer, since a machine
        may be busy, and at least ``start_timeout_s``.

        Returns:
            None if the attempt began with another process of the broker, which has died; or if the actor that waits has
            died, and another one has begun the next attempt.
        """
        attempt = self._attempts.get(trial)
        while attempt is not None and attempt is self._attempts[trial]:
            silent, allowed = self._silence(attempt, hang_timeout_s, start_timeout_s)
            if silent >= allowed and self._waits_for_lane(attempt):
                attempt.waits_for_room()
                silent, allowed = 0.0, hang_timeout_s
            if silent >= allowed:
                slot = self._slots[attempt.slot]
                end = await hang_end(attempt, slot, silent)
                silent, allowed = self._silence(attempt, hang_timeout_s, start_timeout_s)
                ended_well = attempt.end is not None and attempt.end.error is None and not slot.is_closed
                if ended_well or (attempt.end is None and silent < allowed):
                    text = "its workers were silent, but continued while they were asked for their stacks"
                    self._publish(Note(trial, attempt.number, text))
                elif attempt is self._attempts[trial]:
                    end = self._excused(attempt, end)
                    attempt.finish(replace(end, suspected=self._suspected(attempt, end)))
                continue
            waits_s, began = min(allowed - silent, hang_timeout_s, SLICE_S), time.monotonic()
            with contextlib.suppress(TimeoutError):  # logs may have been posted meanwhile
                return await attempt.next_outcome(waits_s)
            late_s = time.monotonic() - began - waits_s
            if late_s > LATE_S:
                attempt.was_stopped(late_s)
        return None

    def _suspected(self, attempt: Attempt, end: Ended) -> tuple[str, ...]:
        """Return the ids of an attempt's nodes if one of them may have caused its failure, so that they must be
        checked."""
        if not self._checks_nodes or attempt.phase is Phase.ENDED or not may_be_the_nodes(end):
            return ()
        if attempt.reason_to_move(end) is not None:
            return ()  # the node was taken away, and did not fail
        return self._suspects.add(tuple(dict.fromkeys(self._slots[attempt.slot].group.nodes)))

    async def assign(self, slot: str, assignment: Any) -> None:
        """Give a slot its next trial.

        Raises:
            NotCurrent: This is not the trial's current attempt.
        """
        attempt = self._needed(*assignment.key)
        attempt.assign(slot, assignment.log_folder)
        self._slots[slot].attempt = attempt
        await self._slots[slot].add(replace(assignment, failures=attempt.failures))
        self._withdraw(attempt)  # it may have begun after the request
        if self._slots[slot].is_starting:
            self._idle.free_if_others_wait()

    async def reserve(self, slot: str, avoid: Collection[str] = (), workers: Workers | None = None) -> bool:
        """Keep a slot for the trial that will be assigned next. Return false if the slot's workers are already ending,
        have started with another process of the broker, which has died, if one of them is on a node to avoid, or if one
        is on a node under check while other nodes have room for the ``workers``."""
        if (queue := self._slots.get(slot)) is None:
            return False
        queue.reserve()
        if workers is not None:
            avoid = (*avoid, *await self._suspects.left_out(workers, avoid, [queue, *self._idle.queues]))
        return not queue.is_closed and set(queue.group.nodes).isdisjoint(avoid)

    async def nodes_to_avoid(self, trial: str, pool: str | None = None) -> tuple[str, ...]:
        """Return the ids of the nodes on which no worker of a pool may be placed. If the trial has failed and its nodes
        are being checked, wait for the result."""
        before = self._attempts.get(trial)
        if before is not None and before.end is not None and before.end.suspected:
            await self._suspects.wait(before.end.suspected, CHECKED_WITHIN_S)
        return self._avoided.get(pool, ())

    async def nodes_to_avoid_now(self, workers: Workers) -> tuple[str, ...]:
        """Return the ids of the nodes on which a trial's workers must not be placed now, including nodes under check if
        others have room."""
        avoided = self._avoided.get(workers.pool, ())
        return (*avoided, *await self._suspects.left_out(workers, avoided, self._idle.queues))

    async def close_slot(self, slot: str) -> None:
        """Give a slot no further trials, so that its workers return."""
        await self._slots[slot].close()

    async def forget_slot(self, slot: str) -> None:
        """Remove a slot whose workers are gone."""
        self._forget_group(slot)
        self._slots.pop(slot, None)
        self._spares.forget(slot)

    async def end(self, event: Ended) -> None:
        """End an attempt whose workers have finished or are gone; only the first end counts."""
        attempt = self._current(event.trial, event.attempt)
        if attempt is not None and attempt.phase is not Phase.ENDED:
            event = with_errors(event, list(attempt.errors.values()), attempt.log_folder)
            if is_workers_death(event):
                event = self._excused(attempt, event)
            if (lost := self._elastic.lose_node(event)) is not None:
                attempt.move(lost)
            attempt.finish(replace(event, suspected=self._suspected(attempt, event)))

    async def wait_for_end(self, slot: str, timeout_s: float, *, is_patient: bool) -> Ended | None:
        """Return the end of the attempt that a slot was last given, even if its trial continues elsewhere; None if it
        takes too long (see ``Attempt.wait_for_end``) or another process of the broker has given it."""
        attempt = self._slots[slot].attempt if slot in self._slots else None
        # The end of an attempt that was too slow to leave before a later one began is dropped.
        if attempt is None or (attempt.end is None and self._attempts.get(attempt.trial) is not attempt):
            return None
        return await attempt.wait_for_end(timeout_s, is_patient=is_patient)

    # --- called by a slot's workers and their controller --------------------------------------------------

    async def slot_started(self, slot: str, group: StartedGroup) -> None:
        """Record that a slot's workers have started."""
        self._slots[slot].group, self._slots[slot].has_started = group, True
        self._move_from_leaving()

    async def spares_to_start(self, slot: str, workers: Sequence[ProcessOrigin], always: bool) -> dict[Place, int]:
        """Return the number of spare processes to start for a worker group that has started."""
        wanted = always or any(each.failures for each in self._attempts_of(slot))
        return self._spares.replace(slot, workers, wanted=wanted)

    async def worker_terminated(self, slot: str, rank: int) -> None:
        """Record that a worker's process has received SIGTERM: the trial moves, and a slot without a trial ends."""
        queue, has_lanes = self._slots.get(slot), self._lanes_of(slot) is not None
        attempts = self._attempts_of(slot)
        continues = has_lanes and bool(attempts)  # trials of a closed slot with lanes train to their end
        if queue is None or queue.is_ending or (queue.is_closed and not continues):
            return  # Ray ends processes with SIGTERM, too
        if not attempts or has_lanes:
            await queue.close()
        locations = queue.group.locations
        location = locations[rank] if rank < len(locations) else "an unknown node"
        for attempt in attempts:
            attempt.move(f"worker {rank} on {location} has received SIGTERM and will end")
            self._withdraw(attempt)

    async def waits_for_room(self, slot: str) -> None:
        """Record that the cluster has no room for a slot's workers now, and free slots without a trial."""
        for attempt in self._attempts_of(slot):
            if attempt.phase is Phase.STARTING:
                attempt.waits_for_room()
        await self._idle.free()

    async def next_assignment(self, slot: str, index: int) -> Any:
        """Wait for a slot's assignment of this number, from 0; None if there will be none.

        Every worker of the slot calls this itself, so that no collective operation stays open while the slot is idle.
        """
        if slot not in self._slots:  # it has started with another process of the broker, which has died
            return None
        queue = self._slots[slot]
        queue.release_when_idle(index, self._search_over)
        return await queue.take(index)

    async def post(self, event: Log | Note | Report | Started) -> None:
        """Receive an event from rank 0; events of earlier attempts are dropped."""
        attempt = self._current(event.trial, event.attempt)
        if attempt is not None:
            before = attempt.delivered or 0
            attempt.post(event, self._slots[attempt.slot].group.locations)
            if isinstance(event, Report) and event.step > before:
                await self._make_room(attempt, done=event.done)
            if isinstance(event, Started):
                self._elastic.trained(event.trial)
            elif isinstance(event, Report) and not attempt.is_cut_off:  # lost events are posted before it
                self._before.pop(event.trial, None)

    async def post_all(self, events: list[Log]) -> None:
        """Receive several events in order."""
        for event in events:
            await self.post(event)

    async def post_and_wait(self, events: list[Log]) -> None:
        """Receive several events of which the last one is a report, and return when the driver has decided that the
        trial continues.

        Raises:
            NotCurrent: This is not the trial's current attempt.
        """
        await self.post_all(events)
        report = cast("Report", events[-1])
        attempt = self._needed(report.trial, report.attempt)
        if not report.done:
            await attempt.wait_for_decision()

    async def alive(self, trial: str, attempt: int) -> None:
        """Record that a worker is alive: it prepares a trial, or waits for an upload or an evaluation."""
        if (current := self._current(trial, attempt)) is not None:
            current.alive()

    async def worker_finished(
        self, trial: str, attempt: int, rank: int, num_workers: int, memory_mib: float, saved_step: int | None = None
    ) -> None:
        """Record that a worker has finished a trial; the main worker passes the step of its newest checkpoint."""
        if (current := self._current(trial, attempt)) is not None:
            current.worker_finished(rank, num_workers, memory_mib, saved_step)

    async def worker_failed(self, trial: str, attempt: int, error: WorkerError) -> None:
        """Record a worker's error. The slot ends the trial later, because other workers may still report errors."""
        if (current := self._current(trial, attempt)) is not None:
            current.add_error(error)

    async def group_ends(self, slot: str) -> bool:
        """Record that a slot's workers are about to be terminated; return whether the worker at fault is still unknown,
        since every error so far is a lost connection to another worker."""
        self._slots[slot].is_ending = True
        errors = [error for attempt in self._attempts_of(slot) for error in attempt.errors.values()]
        return bool(errors) and all(each.kind == "peer" for each in errors)

    async def wait_for_stop(self, trial: str, attempt: int, above: StopRequest = StopRequest.NONE) -> StopRequest:
        """Return when and how the trial should stop, once that is more than its workers know; may never return."""
        current = self._current(trial, attempt)
        return StopRequest.DISCARD if current is None else await current.wait_for_stop(above)

    # --- called by the driver -----------------------------------------------------------------------------

    async def attach(self, trials: Mapping[str, TrialSoFar], told: Collection[Told] = ()) -> list[Event]:
        """Restore the state of the previous broker, and let trials begin. The next ``drain`` returns the events."""
        for method, arguments, named in told:
            await getattr(self, method)(*arguments, **named)
        for attempt in self._attempts.values():  # of this process, which looked dead only because of the network
            asked = [each for each in self._events if isinstance(each, Report | Ended)]
            mine = [each for each in asked if (each.trial, each.attempt) == (attempt.trial, attempt.number)]
            attempt.cut_off(len(mine), CUT_OFF)  # the next attempt posts the events that did not reach the driver
            if attempt.end is None:
                self._withdraw(attempt)
        self._before = {**trials}
        self._attached.set()
        return []

    async def answer(self, answers: Sequence[Answer]) -> None:
        """Apply the driver's answers to reports and ends, in their order."""
        for each in answers:
            if (attempt := self._current(each.trial, each.attempt)) is not None:
                attempt.answer(each)

    async def stop_waiting_for_answers(self) -> None:
        """Let trials end without the driver's answers, because the driver records nothing further."""
        self._is_answered = False
        for attempt in self._attempts.values():
            attempt.stop_waiting_for_answers()

    async def stop(self, trial: str, attempt: int | None = None) -> None:
        """Ask a trial to stop at its next report.

        Args:
            trial: Id of the trial.
            attempt: Number of the only attempt to stop; default: whichever is current.
        """
        current = self._attempts.get(trial)
        if current is not None and attempt in (None, current.number):
            current.request_stop(StopRequest.SAVE)
            self._withdraw(current)

    async def stop_for_good(self, trial: str) -> None:
        """Ask a trial to stop after a checkpoint, in this attempt and in later ones, because it may be paused now."""
        self._stopped_by_user.add(trial)
        self._elastic.end_waiting()
        await self.stop(trial)

    async def stop_all(self) -> None:
        """Ask every trial, including later ones, to stop after a checkpoint."""
        self._stops_all = True
        self._elastic.end_waiting()
        for attempt in self._attempts.values():
            attempt.request_stop(StopRequest.SAVE)
            self._withdraw(attempt)

    async def resume(self) -> None:
        """Let later trials train again after ``stop_all``."""
        self._stops_all = False

    async def search_over(self, over: bool) -> None:
        """Set whether the search starts no further trials: slots without a trial are then released."""
        if over:
            self._search_over.set()
        else:
            self._search_over.clear()

    async def set_room(self, places: int, expected: int, to_come: int = 0) -> None:
        """Set the resources that elastic trials share; see ``WorkerShares.set_room``."""
        self._elastic.set_room(places, expected, to_come)

    async def avoid(self, nodes: Mapping[str | None, tuple[str, ...]], checked: Collection[str] = ()) -> None:
        """Place no further workers on the given nodes.

        Args:
            nodes: Ids of the nodes, by pool.
            checked: Ids of the nodes of a failed attempt that have been checked with this result.
        """
        self._avoided = nodes
        self._suspects.checked(checked)

    async def nodes_leave(self, nodes: Mapping[str, str]) -> None:
        """Move the trials on nodes that leave to others after a checkpoint.

        Args:
            nodes: Announcement of each node that has been said to leave so far, by its id.
        """
        self._leaving = nodes
        self._move_from_leaving()

    async def check_nodes(self) -> None:
        """Enable checks of nodes that may have caused a failure: the trial's next attempt waits for the check, and
        workers of other trials are placed elsewhere if there is room."""
        self._checks_nodes = True

    async def drain(self, timeout_s: float) -> list[Event]:
        """Return all events since the last call; wait up to ``timeout_s`` for the first one.

        Raises:
            NotAttached: This process has replaced another one, and the driver has not attached yet.
        """
        if not self._attached.is_set():
            raise NotAttached
        try:
            await asyncio.wait_for(self._arrived.wait(), timeout_s)
        except TimeoutError:
            return []
        events, self._events = self._events, []
        self._arrived.clear()
        return events

    def _is_to_stop(self, trial: str) -> bool:
        return self._stops_all or trial in self._stopped_by_user

    def _publish(self, event: Event) -> None:
        self._events.append(event)
        self._arrived.set()

    def _move_from_leaving(self) -> None:
        for attempt in self._attempts.values():
            slot = self._slots.get(attempt.slot)
            if slot is None or attempt.phase is Phase.ENDED:
                continue
            nodes = slot.group.nodes
            on_them = [rank for rank, node in enumerate(nodes) if node in self._leaving]
            if on_them:
                location, announced = slot.group.locations[on_them[0]], self._leaving[nodes[on_them[0]]]
                workers = ", ".join(map(str, on_them))
                attempt.move(f"the node of worker{'s'[: len(on_them) > 1]} {workers}, {location}, {announced}")
                self._withdraw(attempt)
