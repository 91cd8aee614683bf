"""The strategy of one lane that shares its base model: it handles only the lane's adapters, since all lanes share their
forward and backward passes."""

from __future__ import annotations

import functools
from collections.abc import Callable

from sweeps_train.lanes.joint_model import adapted_layers
from sweeps_train.lanes.own_random_numbers import OwnRandomNumbers
from sweeps_train.models.fused_lora import FusedLinear
from sweeps_train.steps.precision import Precision
from sweeps_train.strategies.strategy import Capabilities, Strategy
from sweeps_train.workers.distributed import Workers


class LaneStrategy(Strategy):
    """Evaluates, clips and saves the adapters of one lane. Every worker holds all adapters of the lane, as with
    ``ddp``."""

    random_numbers: OwnRandomNumbers

    def __init__(self, workers: Workers, precision: Precision, capabilities: Capabilities):
        super().__init__(workers, precision, capabilities)
        self.random_numbers = OwnRandomNumbers(workers.device)
        self.capture_note: Callable[[str], None] | None = None
        """Tells this lane's user that passes cannot be recorded; None if recording is off."""

    @functools.cached_property
    def layers(self) -> dict[str, FusedLinear]:
        """Layers of the lane's model that have adapters, by their names in the base."""
        return adapted_layers(self.task.model)

    def capture_passes(self, note: Callable[[str], None]) -> None:
        repeats = self.task.repeats_its_passes and not self.capabilities.activation_checkpointing
        if self.workers.device.type == "cuda" and repeats:
            self.capture_note = note
