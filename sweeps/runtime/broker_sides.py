"""Interfaces to the broker for a trial's actor and for the workers of a slot; the driver's is ``DriverSide``.

Each method has the name, the arguments and the meaning of the method of ``Broker`` that it calls. Only ``call`` depends
on the broker being a Ray actor.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

import ray

from sweeps.runtime.answers import Outcome
from sweeps.runtime.attachment import BROKER_DIED
from sweeps.runtime.broker import Broker
from sweeps.runtime.events import Ended
from sweeps.tracking.values import now_ms

P = ParamSpec("P")
T = TypeVar("T")


def call(method: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **named: P.kwargs) -> ray.ObjectRef[T]:
    """Call a method of the broker's actor, without waiting for the answer."""
    actor_method: Any = method
    answer: ray.ObjectRef[T] = actor_method.remote(*arguments, **named)
    return answer


def calls(
    method: Callable[Concatenate[Broker, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], ray.ObjectRef[T]]:
    """Return an interface's method that calls a method of the broker, without waiting for the answer."""

    def method_of_side(side: Side, /, *arguments: P.args, **named: P.kwargs) -> ray.ObjectRef[T]:
        return call(getattr(side.broker, method.__name__), *arguments, **named)

    return method_of_side


def asks(method: Callable[Concatenate[Broker, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return an interface's method that calls a method of the broker, and waits for the answer."""

    def method_of_side(side: Side, /, *arguments: P.args, **named: P.kwargs) -> T:
        answer: T = ray.get(call(getattr(side.broker, method.__name__), *arguments, **named))
        return answer

    return method_of_side


class Side:
    """Base class of the interfaces to the broker."""

    def __init__(self, actor: Any) -> None:
        self.broker: Broker = actor

    end = asks(Broker.end)
    lanes = asks(Broker.lanes)


class TrialSide(Side):
    """Interface to the broker for a trial's Tune actor and for owners of worker groups."""

    def __init__(self, actor: Any) -> None:
        super().__init__(actor)
        self.workers = WorkersSide(actor)
        """Interface to the broker for the trial's workers."""

    begin = asks(Broker.begin)
    claim_workers = asks(Broker.claim_workers)
    release_workers = calls(Broker.release_workers)
    stop = calls(Broker.stop)
    wait_for_end = asks(Broker.wait_for_end)

    def next_outcome(self, trial: str, attempt: int, hang_timeout_s: float, start_timeout_s: float) -> Outcome:
        """Wait for the next outcome that the trial's actor passes on to Tune. If the broker's process dies, the attempt
        ends and the trial moves, which is no failure."""
        with contextlib.suppress(ray.exceptions.ActorUnavailableError):
            outcome = ray.get(call(self.broker.next_outcome, trial, hang_timeout_s, start_timeout_s))
            if outcome is not None:
                return outcome
        return Outcome({}, Ended(trial, attempt, BROKER_DIED, moved=BROKER_DIED, timestamp_ms=now_ms()))

    assign = asks(Broker.assign)
    reserve = asks(Broker.reserve)
    nodes_to_avoid = asks(Broker.nodes_to_avoid)
    close_slot = asks(Broker.close_slot)
    forget_slot = calls(Broker.forget_slot)

    assign_lane = asks(Broker.assign_lane)
    leave_lane = asks(Broker.leave_lane)
    slot_ended = asks(Broker.slot_ended)


class WorkersSide(Side):
    """Interface to the broker for the workers of a slot and their controller in Ray Train."""

    next_assignment = asks(Broker.next_assignment)
    post = calls(Broker.post)
    post_all = calls(Broker.post_all)
    post_and_wait = asks(Broker.post_and_wait)
    alive = calls(Broker.alive)
    wait_for_stop = calls(Broker.wait_for_stop)
    worker_finished = asks(Broker.worker_finished)
    worker_failed = asks(Broker.worker_failed)

    wait_for_trial = calls(Broker.wait_for_trial)
    take_trials = asks(Broker.take_trials)
    lane_ended = asks(Broker.lane_ended)
    set_lanes = calls(Broker.set_lanes)
    worker_of_slot_failed = asks(Broker.worker_of_slot_failed)

    slot_started = asks(Broker.slot_started)
    waits_for_room = asks(Broker.waits_for_room)
    nodes_to_avoid_now = asks(Broker.nodes_to_avoid_now)
    spares_to_start = asks(Broker.spares_to_start)
    worker_terminated = calls(Broker.worker_terminated)
    group_ends = asks(Broker.group_ends)
