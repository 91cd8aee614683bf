"""Mixed precision: the dtype of the forward pass, and the loss scaling that fp16 needs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}


class Precision:
    """Autocast and gradient scaler (Micikevicius et al., 2017, https://arxiv.org/abs/1710.03740)."""

    def __init__(self, name: Literal["auto", "fp32", "bf16", "fp16", "fp8"], device: torch.device):
        """The name ``auto`` is bf16 on GPUs that have it in hardware, fp16 on older ones from NVIDIA, fp32 elsewhere;
        ``fp8`` is bf16 for all but the layers that ``models.float8`` converts."""
        if name == "auto":
            name = _best(device)
        self._device_type = device.type
        self.type = _TYPES.get(name)
        """Dtype of the forward pass; None for the dtype of the weights."""
        self.scaler = torch.amp.GradScaler(device.type, enabled=name == "fp16")
        """Gradient scaler; inactive unless the dtype is fp16, in which small gradients would underflow."""

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context manager for a forward pass."""
        return nullcontext() if self.type is None else torch.autocast(self._device_type, dtype=self.type)


def _best(device: torch.device) -> Literal["fp32", "bf16", "fp16"]:
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    if device.type == "xpu":
        return "bf16" if torch.xpu.is_bf16_supported(including_emulation=False) else "fp32"
    return "fp32"
