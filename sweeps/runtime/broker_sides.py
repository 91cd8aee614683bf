"""Interfaces to the broker for a trial's actor and for the workers of a slot; the driver's is ``DriverSide``.

Only ``call`` depends on the broker being a Ray actor. Calls are checked against the types of ``Broker``, which workers
do not import.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import ray

from sweeps.runtime.answers import Outcome
from sweeps.runtime.attachment import Begun, ended_with_broker
from sweeps.runtime.events import Ended, Log, Note, Report, Started

if TYPE_CHECKING:
    from sweeps.runtime.attempt import StopRequest
    from sweeps.runtime.broker import Broker
    from sweeps.runtime.spare_processes import Place, ProcessOrigin
    from sweeps.runtime.trial_assignment import Assignment
    from sweeps.runtime.trials_at_once import Workers
    from sweeps.runtime.worker_group_spec import WorkerGroupSpec
    from sweeps.worker_error import WorkerError

P = ParamSpec("P")
T = TypeVar("T")


def call(method: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **named: P.kwargs) -> ray.ObjectRef[T]:
    """Call a method of the broker's handle, without waiting for the answer."""
    actor_method: Any = method
    answer: ray.ObjectRef[T] = actor_method.remote(*arguments, **named)
    return answer


def ask(method: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **named: P.kwargs) -> T:
    """Call a method of the broker's handle, and wait for the answer."""
    return ray.get(call(method, *arguments, **named))


class _Side:
    def __init__(self, actor: Any) -> None:
        """
        Args:
            actor: Handle of the broker.
        """
        self._broker: Broker = actor

    def end(self, event: Ended) -> None:
        """End an attempt whose workers have finished or are gone; only the first end counts."""
        ask(self._broker.end, event)

    def lanes(self) -> tuple[int, str | None]:
        """Return the number of trials that a worker group should train at a time, and a text of the measurements once
        the number is final."""
        return ask(self._broker.lanes)


class TrialSide(_Side):
    """Interface to the broker for a trial's Tune actor and for owners of worker groups. Calls wait for answers, unless
    the method returns nothing that a trial needs."""

    def __init__(self, actor: Any) -> None:
        super().__init__(actor)
        self.workers = WorkersSide(actor)
        """Interface to the broker for the trial's workers."""

    # --- attempts ---------------------------------------------------------------------------------------------

    def begin(self, trial: str, *, saves_when_asked: bool, lost: Ended | None) -> Begun:
        """Begin a new attempt at a trial."""
        return ask(self._broker.begin, trial, saves_when_asked, lost)

    def claim_workers(self, trial: str, numbers: Sequence[int], total_steps: int | None, previous: str | None) -> int:
        """Wait until an elastic trial can begin."""
        return ask(self._broker.claim_workers, trial, numbers, total_steps, previous)

    def release_workers(self, trial: str) -> None:
        """Free the workers of an elastic trial for other trials."""
        call(self._broker.release_workers, trial)

    def next_outcome(self, trial: str, attempt: int, hang_timeout_s: float, start_timeout_s: float) -> Outcome:
        """Wait for the next outcome that the trial's actor passes on to Tune. If the broker's process dies, the attempt
        ends and the trial moves."""
        outcome: Outcome | None = None
        with contextlib.suppress(ray.exceptions.ActorUnavailableError):
            outcome = ask(self._broker.next_outcome, trial, hang_timeout_s, start_timeout_s)
        return Outcome({}, ended_with_broker(trial, attempt)) if outcome is None else outcome

    def stop(self, trial: str, attempt: int) -> None:
        """Ask an attempt to stop at its next report."""
        call(self._broker.stop, trial, attempt)

    def wait_for_end(self, trial: str, attempt: int, timeout_s: float) -> Ended | None:
        """Return the end of an attempt; None if it takes too long or a later attempt has begun."""
        return ask(self._broker.wait_for_end, trial, attempt, timeout_s)

    # --- slots ------------------------------------------------------------------------------------------------

    def assign(self, slot: str, assignment: Assignment) -> None:
        """Give a slot its next trial."""
        ask(self._broker.assign, slot, assignment)

    def reserve(self, slot: str, avoid: Collection[str], workers: Workers) -> bool:
        """Keep a slot for the trial that will be assigned next."""
        return ask(self._broker.reserve, slot, avoid, workers)

    def nodes_to_avoid(self, trial: str, pool: str | None) -> tuple[str, ...]:
        """Return the ids of the nodes on which no worker of a pool may be placed."""
        return ask(self._broker.nodes_to_avoid, trial, pool)

    def close_slot(self, slot: str) -> None:
        """Give a slot no further trials, so that its workers return."""
        ask(self._broker.close_slot, slot)

    def forget_slot(self, slot: str) -> None:
        """Remove a slot whose workers are gone."""
        call(self._broker.forget_slot, slot)

    # --- lanes ------------------------------------------------------------------------------------------------

    def assign_lane(self, assignment: Assignment, spec: WorkerGroupSpec) -> None:
        """Give a trial to the slot with the fewest trials, or to a new one while there is room."""
        ask(self._broker.assign_lane, assignment, spec)

    def leave_lane(self, trial: str, attempt: int, within_s: float) -> None:
        """Remove a trial from its lane, or from the queue for one."""
        ask(self._broker.leave_lane, trial, attempt, within_s)

    def slot_ended(self, slot: str, error: str | None, lost: tuple[WorkerError, ...]) -> None:
        """End the attempts of a slot with lanes whose workers have returned or are gone."""
        ask(self._broker.slot_ended, slot, error, lost)


class WorkersSide(_Side):
    """Interface to the broker for the workers of a slot and their controller in Ray Train. Methods that return an
    ``ObjectRef`` do not wait."""

    # --- the trial of a worker --------------------------------------------------------------------------------

    def next_assignment(self, slot: str, index: int) -> Assignment | None:
        """Wait for a slot's assignment of this number, from 0; None if there will be none."""
        assignment: Assignment | None = ask(self._broker.next_assignment, slot, index)
        return assignment

    def post(self, event: Log | Note | Report | Started) -> ray.ObjectRef[None]:
        """Post an event, on rank 0."""
        return call(self._broker.post, event)

    def post_all(self, events: list[Log]) -> ray.ObjectRef[None]:
        """Post several events in order."""
        return call(self._broker.post_all, events)

    def post_and_wait(self, events: list[Log]) -> None:
        """Post several events of which the last one is a report, and return when the driver has decided that the trial
        continues."""
        ask(self._broker.post_and_wait, events)

    def alive(self, trial: str, attempt: int) -> None:
        """Send a sign of life of a worker that prepares a trial."""
        call(self._broker.alive, trial, attempt)

    def wait_for_stop(self, trial: str, attempt: int, above: StopRequest) -> ray.ObjectRef[StopRequest]:
        """Return when and how the trial should stop; may never return."""
        return call(self._broker.wait_for_stop, trial, attempt, above)

    def worker_finished(
        self, trial: str, attempt: int, rank: int, num_workers: int, memory_mib: float, saved_step: int | None
    ) -> None:
        """Tell the broker that this worker has finished a trial."""
        ask(self._broker.worker_finished, trial, attempt, rank, num_workers, memory_mib, saved_step)

    def worker_failed(self, trial: str, attempt: int, error: WorkerError) -> None:
        """Report a worker's error."""
        ask(self._broker.worker_failed, trial, attempt, error)

    # --- the lanes of a slot ----------------------------------------------------------------------------------

    def wait_for_trial(self, slot: str, *, is_idle: bool = False) -> ray.ObjectRef[bool]:
        """Wait until a trial is queued for a lane of the slot."""
        return call(self._broker.wait_for_trial, slot, is_idle)

    def take_trials(self, slot: str, most: int) -> list[Assignment]:
        """Move at most ``most`` waiting trials into lanes."""
        return ask(self._broker.take_trials, slot, most)

    def lane_ended(self, slot: str, event: Ended) -> None:
        """End the attempt of a trial that has left its lane."""
        ask(self._broker.lane_ended, slot, event)

    def set_lanes(self, number: int, reason: str | None) -> None:
        """Tell the broker the number of trials that a worker group should train at a time."""
        call(self._broker.set_lanes, number, reason)

    def worker_of_slot_failed(self, slot: str, error: WorkerError) -> None:
        """Report a worker's error as an error of all trials of its slot."""
        ask(self._broker.worker_of_slot_failed, slot, error)

    # --- processes and nodes ----------------------------------------------------------------------------------

    def slot_started(self, slot: str, handles: dict[str, Any]) -> None:
        """Send the handles of the actors that a slot has started."""
        ask(self._broker.slot_started, slot, handles)

    def waits_for_room(self, slot: str) -> None:
        """Tell the broker that the cluster has no room for a slot's workers now."""
        ask(self._broker.waits_for_room, slot)

    def nodes_to_avoid_now(self, workers: Workers) -> tuple[str, ...]:
        """Return the ids of the nodes on which a trial's workers must not be placed now."""
        return ask(self._broker.nodes_to_avoid_now, workers)

    def spares_to_start(self, slot: str, workers: Sequence[ProcessOrigin], always: bool) -> dict[Place, int]:
        """Return the number of spare processes to start for a worker group that has started."""
        return ask(self._broker.spares_to_start, slot, workers, always)

    def worker_terminated(self, slot: str, rank: int) -> None:
        """Tell the broker that this worker's process has received SIGTERM."""
        call(self._broker.worker_terminated, slot, rank)

    def group_ends(self, slot: str) -> bool:
        """Tell the broker that a slot's workers are about to be terminated; see ``Broker.group_ends``."""
        return ask(self._broker.group_ends, slot)
