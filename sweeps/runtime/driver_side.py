"""The driver's interface to the broker: starts the broker's process, sends settings for the whole sweep, and receives
events."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, cast

import ray

from sweeps.runtime.answers import Answer
from sweeps.runtime.attachment import NotAttached, Told, TrialSoFar
from sweeps.runtime.broker import Broker
from sweeps.runtime.broker_actor import BrokerActor
from sweeps.runtime.broker_sides import Side, TrialSide, call, calls
from sweeps.runtime.events import Event
from sweeps.runtime.node_resources import on_node

P = ParamSpec("P")

MAX_RESTARTS = 100
"""Maximum number of restarts of the broker's process, so that a broker that dies at every start eventually ends the
sweep."""
GROUPS_END_WITHIN_S = 20.0
"""Maximum seconds for worker groups with lanes to end with the sweep; after that they end with the broker."""
ANSWERS_WITHIN_S = 30.0
"""Maximum seconds for the answer of a broker that is alive; a busy machine may be slow."""
LATE_S = 1.0
"""Maximum seconds to wait for a late answer of the broker before the driver continues with other work."""


def tells(
    matter: str, method: Callable[Concatenate[Broker, P], Coroutine[Any, Any, None]]
) -> Callable[Concatenate[Any, P], None]:
    """Return a ``DriverSide`` method that sends the broker a setting for the whole sweep; see ``DriverSide.tell``."""

    def method_of_side(side: DriverSide, /, *arguments: P.args, **named: P.kwargs) -> None:
        side.tell(matter, method, *arguments, **named)

    return method_of_side


class DriverSide(Side):
    """Interface of the driver to the broker. Settings are sent without waiting for an answer."""

    def __init__(self, *, max_restarts: int = MAX_RESTARTS) -> None:
        """Start the broker's actor, which reserves no resources and ends with the driver. It runs on the driver's node,
        since the sweep does not survive the loss of that node.

        Args:
            max_restarts: Maximum number of restarts of the broker's process; 0 for a driver that never attaches,
                because its calls of a restarted broker would wait forever.
        """
        here, actor = on_node(ray.get_runtime_context().get_node_id()), cast("Any", ray.remote(BrokerActor))
        super().__init__(actor.options(max_concurrency=10_000, max_restarts=max_restarts, **here).remote())
        self.of_trials = TrialSide(self.broker)
        """Interface to the broker for the trials' actors."""
        self._told: dict[str, Told] = {}
        """Last message on each subject, which a restarted broker receives again."""
        self._awaited: ray.ObjectRef[list[Event]] | None = None
        """The pending ``drain`` or ``attach`` call, which will return events; None if there is none."""
        self._answered: ray.ObjectRef[None] | None = None
        """The last call that sent answers."""

    # --- what applies to the whole sweep, and is told to a new process again ----------------------------------

    stop_all = tells("stop", Broker.stop_all)
    resume = tells("stop", Broker.resume)
    search_over = tells("search", Broker.search_over)
    set_room = tells("room", Broker.set_room)
    set_groups = tells("groups", Broker.set_groups)
    set_lanes = tells("lanes", Broker.set_lanes)
    forget_lanes = tells("lanes", Broker.forget_lanes)
    avoid = tells("avoid", Broker.avoid)
    check_nodes = tells("check", Broker.check_nodes)
    nodes_leave = tells("leaving", Broker.nodes_leave)
    stop_waiting_for_answers = tells("answers", Broker.stop_waiting_for_answers)

    def stop_for_good(self, trial: str) -> None:
        """Ask a trial to stop after a checkpoint, in this attempt and in later ones."""
        self.tell(f"stop {trial}", Broker.stop_for_good, trial)

    def tell(self, matter: str, method: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        """Send the broker a setting by calling one of its methods. A restarted broker receives the last message on each
        ``matter`` again."""
        self._told[matter] = method.__name__, arguments, named
        call(getattr(self.broker, method.__name__), *arguments, **named)

    # --- lanes, and one trial ---------------------------------------------------------------------------------

    def lanes(self) -> tuple[int, str | None]:
        """Return the number of trials that a worker group should train at a time, and a description of the measurements
        once the number is final.

        Raises:
            RayError: The broker does not answer.
        """
        return ray.get(call(self.broker.lanes), timeout=ANSWERS_WITHIN_S)

    # For a trial whose actor may have died without leaving its lane, or freeing its workers.
    stop = calls(Broker.stop)
    abandon_workers = calls(Broker.abandon_workers)

    def end_groups(self) -> None:
        """End all worker groups with lanes, which do not belong to a trial's actor."""
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(call(self.broker.end_groups), timeout=GROUPS_END_WITHIN_S)

    # --- events -----------------------------------------------------------------------------------------------

    @property
    def is_answering(self) -> bool:
        """Whether the broker has answered the last ``drain``."""
        return self._awaited is None

    def drain(self, timeout_s: float) -> list[Event] | None:
        """Return all events since the last call; wait up to ``timeout_s`` for the first one, and somewhat longer for a
        broker that does not answer.

        Returns:
            The events; None if the broker's process has died: then events may be lost, and ``attach`` must be called.

        Raises:
            RayError: The cluster is gone.
        """
        if self._awaited is None:
            self._awaited = call(self.broker.drain, timeout_s)
        if not ray.wait([self._awaited], timeout=timeout_s + LATE_S)[0]:
            return []
        drained, self._awaited = self._awaited, None
        try:
            return ray.get(drained)
        except (ray.exceptions.ActorUnavailableError, NotAttached):
            return None

    def answer(self, answers: Sequence[Answer]) -> None:
        """Answer reports and ends. An asynchronous actor may reorder calls, so each call begins when the previous one
        has ended."""
        if self._answered is not None:
            ray.wait([self._answered], timeout=LATE_S)
        self._answered = call(self.broker.answer, answers)

    def attach(self, trials: Mapping[str, TrialSoFar]) -> None:
        """Send a restarted broker the state of the previous one, and let the trials begin again."""
        self._awaited = call(self.broker.attach, trials, [*self._told.values()])
