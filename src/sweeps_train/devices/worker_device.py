"""The device of a worker: which accelerator it uses, or the CPU. Ray Train assigns one to each of its workers."""

from __future__ import annotations

import logging
import os
from functools import cache

import torch

_log = logging.getLogger(__name__)

_TRIED = frozenset({"cpu", "cuda"})
"""Kinds of devices on which the tests have run; ``docs/gpu_checklist.md`` describes how to add another."""


def worker_device() -> torch.device:
    """Return the device of this worker: the one that Ray Train has assigned, or else torch's current accelerator."""
    # Ray Train sets this variable of Hugging Face Accelerate to the device of the worker. A worker without a GPU may
    # still see those of its machine.
    assigned = os.environ.get("ACCELERATE_TORCH_DEVICE")
    device = torch.device(assigned) if assigned else _current_accelerator()
    _note_untried(device.type)
    return device


def _current_accelerator() -> torch.device:
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if found is None:
        return torch.device("cpu")
    return torch.device(found.type, torch.accelerator.current_device_index())


@cache
def _note_untried(kind: str) -> None:
    """Log once that Sweeps was never tried on this kind of device."""
    name = "ROCm" if kind == "cuda" and torch.version.hip else kind
    if name not in _TRIED:
        _log.warning("Sweeps has not been tested on %s devices yet; `make test-gpu` shows what works", name)


def select_own(local_rank: int, processes: int) -> None:
    """Assign one of this machine's accelerators to this process, if there is one and the process may use it.
    ``local_rank`` is its index among the training's ``processes`` on this machine.

    Raises:
        ValueError: There are more processes than accelerators. If each process sees only its own accelerator, all must
            have the local rank 0.
    """
    if not torch.accelerator.is_available() or os.environ.get("ACCELERATE_TORCH_DEVICE") == "cpu":
        return
    found = torch.accelerator.device_count()
    if local_rank >= found:
        raise ValueError(
            f"--nproc-per-node={processes}: each process needs a GPU of its own, and this machine has {found}; "
            f"start {found}, or set ACCELERATE_TORCH_DEVICE=cpu to train on the CPUs"
        )
    torch.accelerator.set_device_index(local_rank)
