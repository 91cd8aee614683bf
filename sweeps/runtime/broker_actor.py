"""Ray actor class of the broker."""

from __future__ import annotations

import ray

from sweeps.runtime.broker import Broker
from sweeps.runtime.lane_group_owner import start_group


class BrokerActor(Broker):
    """Broker as an actor that Ray restarts when its process dies."""

    def __init__(self) -> None:
        is_new = not ray.get_runtime_context().was_current_actor_reconstructed
        super().__init__(is_new=is_new, start_group=start_group)
