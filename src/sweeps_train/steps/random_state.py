"""Random states of torch, Python and numpy: seeded, saved and restored together."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from sweeps_train.devices.device_operations import random_state_of, set_random_state_of


def seed_all(*seeds: int) -> None:
    """Seed torch (on all devices), Python and numpy from several numbers."""
    seed = int(np.random.SeedSequence(seeds).generate_state(1)[0])
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - users' data sets and models may draw from the global state
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:  # torch.manual_seed would also store it, with the stack, for devices that may be used later
        torch.default_generator.manual_seed(seed)


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the current random states, as types that ``torch.load(weights_only=True)`` reads."""
    numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002
    keys = torch.from_numpy(numpy_state["state"]["key"].astype(np.int64))
    version, words, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        device.type: random_state_of(device),
        # One tensor: torch.save would look at each of 625 numbers, which takes longer than a small checkpoint. Numpy
        # makes it from a tuple in a tenth of torch's time.
        "python": (version, torch.from_numpy(np.array(words, dtype=np.int64)), gauss),
        "numpy": {**numpy_state, "state": {**numpy_state["state"], "key": keys}},
    }


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Restore the result of ``random_state``; an accelerator's only if it was saved on one of the same kind."""
    torch.set_rng_state(state["torch"])
    if (of_device := state.get(device.type)) is not None:
        set_random_state_of(device, of_device)
    version, words, gauss = state["python"]
    # Earlier versions have saved a tuple of numbers.
    random.setstate((version, tuple(words.tolist()) if isinstance(words, torch.Tensor) else words, gauss))
    inner = state["numpy"]["state"]
    keys = inner["key"].numpy().astype(np.uint32)
    np.random.set_state({**state["numpy"], "state": {**inner, "key": keys}})  # noqa: NPY002


class RandomNumbers:
    """Source of a training's random numbers: the process's own generators."""

    def __init__(self, device: torch.device):
        self._device = device

    def seed(self, *seeds: int) -> None:
        """Reseed with a mixture of several numbers."""
        seed_all(*seeds)

    def state(self) -> dict[str, Any]:
        """Return the current state, in the form of ``random_state``."""
        return random_state(self._device)

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from an earlier state."""
        set_random_state(state, self._device)
