"""Random numbers of one lane, independent of the other lanes: the same as when the lane trains alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

from sweeps_train.devices.device_operations import is_accelerator
from sweeps_train.steps.random_state import RandomNumbers, random_state, seed_all


class OwnRandomNumbers(RandomNumbers):
    """Generator states for one lane, used in place of the process's."""

    def __init__(self, device: torch.device):
        super().__init__(device)
        self._cpu = torch.Generator()
        self._on_device = torch.Generator(device) if is_accelerator(device) else self._cpu
        self._others: dict[str, Any] = {}
        """States of Python's and numpy's random numbers, which are restored and saved although lanes draw none from
        them."""

    def seed(self, *seeds: int) -> None:
        before = random_state(self._device)
        seed_all(*seeds)
        self.restore(random_state(self._device))
        super().restore(before)

    def state(self) -> dict[str, Any]:
        drawn = {self._device.type: self._on_device.get_state() if self._on_device is not self._cpu else None}
        return {**drawn, "torch": self._cpu.get_state(), **self._others}

    def restore(self, state: dict[str, Any]) -> None:
        self._cpu.set_state(state["torch"])
        if (of_device := state.get(self._device.type)) is not None:
            self._on_device.set_state(of_device)
        self._others = {name: state[name] for name in ("python", "numpy")}

    def dropout(self, x: torch.Tensor, p: float) -> torch.Tensor:
        """Apply dropout with the same mask as ``torch.nn.functional.dropout`` in a training that runs alone."""
        if x.device.type == "cuda":
            with self._as_default():
                return functional.dropout(x, p)
        kept = torch.empty(x.shape, dtype=x.dtype, device=x.device).bernoulli_(1 - p, generator=self._on_device)
        return x * kept.div_(1 - p)

    @contextmanager
    def _as_default(self) -> Iterator[None]:
        """Make GPU kernels draw from this lane's state, since their fused dropout takes no generator."""
        default = torch.cuda.default_generators[self._on_device.device.index]
        before = default.graphsafe_get_state()
        default.graphsafe_set_state(self._on_device)
        try:
            yield
        finally:
            default.graphsafe_set_state(before)
