"""The training library: what runs on a worker. Works under Sweeps, under ``torchrun`` and in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps_train.checkpoint import load_model as load_model

__all__ = ["load_model"]


def __getattr__(name: str) -> Any:
    # Late, so that the driver can import sweeps_train.config without torch.
    if name == "load_model":
        from sweeps_train.checkpoint import load_model

        return load_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
