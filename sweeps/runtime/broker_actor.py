"""Ray actors of the broker, and of the owners of worker groups with lanes, which outlive the actors of their trials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ray

from sweeps.runtime.broker import Broker
from sweeps.runtime.node_resources import on_node

if TYPE_CHECKING:
    from sweeps.runtime.worker_group_spec import WorkerGroupSpec


class BrokerActor(Broker):
    """Broker as an actor that Ray restarts when its process dies."""

    def __init__(self) -> None:
        is_new = not ray.get_runtime_context().was_current_actor_reconstructed
        super().__init__(is_new=is_new, start_group=start_group)


class GroupOwner:
    """Runs the controller of a worker group, whose workers end with this process."""

    def __init__(self, slot: str, spec: WorkerGroupSpec, broker: Any) -> None:
        from sweeps.runtime.broker_sides import TrialSide
        from sweeps.runtime.worker_group import Slot  # imports ray.train

        self._slot = Slot(slot, spec, TrialSide(broker))

    def wait(self) -> None:
        """Wait until the workers have ended and the broker knows."""
        self._slot.join()

    def close(self) -> None:
        """Free the workers now."""
        self._slot.close()


def start_group(slot: str, spec: WorkerGroupSpec) -> Any:
    """Start the owner of a new worker group on this node; called in the broker's process.

    Returns:
        The only handle of the owner, which ends when the handle is dropped.
    """
    context = ray.get_runtime_context()
    actor: Any = ray.remote(GroupOwner)
    started = actor.options(max_concurrency=2, **on_node(context.get_node_id()))
    return started.remote(slot, spec, context.current_actor)
