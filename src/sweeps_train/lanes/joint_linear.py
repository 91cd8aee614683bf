"""A frozen linear layer with the adapters of several lanes, each of which adds to the outputs of its own rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from sweeps_train.models.fused_lora import FusedLinear, scaled_product


@dataclass(frozen=True)
class Part:
    """Rows of one lane in a joint batch."""

    lane: int
    """Number of the lane."""
    rows: slice
    length: int
    """Tokens in the lane's own batch; those behind them are padding."""
    dropout: Callable[[torch.Tensor, float], torch.Tensor]
    """Dropout with the lane's random numbers."""


class JointLinear(nn.Module):
    """Computes ``x W' + b`` for all rows at once, and adds each lane's ``scale * dropout(x) A' B'`` to its own."""

    def __init__(self, base: nn.Linear, parts: list[Part]):
        """
        Args:
            base: The frozen layer.
            parts: Rows of the present batch, one list for all layers, which the owner of this layer fills.
        """
        super().__init__()
        self.base = base
        self._parts = parts
        self.adapted: Sequence[FusedLinear | None] = ()
        """The same layer in each lane's own model; None in those that do not adapt it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dim() != 3 or x.shape[0] != self._parts[-1].rows.stop:
            raise ValueError(
                "model.lora.target_modules: a layer gets its inputs in another shape than (samples, tokens, width), so "
                "that those of several lanes cannot be told apart; train such adapters with trials_per_group=1"
            )
        device = x.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
        x = x.to(dtype)
        places: list[tuple[slice, float]] = []
        tensors: list[torch.Tensor | None] = []
        for part in self._parts:
            layer = self.adapted[part.lane]
            if layer is None:
                continue
            (name,) = layer.lora_A
            places.append((part.rows, layer.scaling[name]))
            dropped = _dropped(x[part.rows], part, getattr(layer.lora_dropout[name], "p", 0.0))
            tensors += [dropped, layer.lora_A[name].weight.to(dtype), layer.lora_B[name].weight.to(dtype)]
        weight, bias = self.base.weight.to(dtype), self.base.bias
        product: torch.Tensor = _JointProduct.apply(  # type: ignore[no-untyped-call]
            x, weight, None if bias is None else bias.to(dtype), places, *tensors
        )
        return product


def _dropped(x: torch.Tensor, part: Part, p: float) -> torch.Tensor | None:
    """The rows of a lane after dropout, which draws for its own tokens alone; None without dropout."""
    if p == 0:
        return None
    own = part.dropout(x[:, : part.length], p)
    return functional.pad(own, (0, 0, 0, x.shape[1] - part.length))


class _JointProduct(torch.autograd.Function):
    """Gradients of the input and of all adapters, as ``FusedLinear`` has them for one."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        places: Sequence[tuple[slice, float]],
        *tensors: torch.Tensor | None,
    ) -> torch.Tensor:
        output = functional.linear(x, weight, bias)
        saved: list[torch.Tensor | None] = []
        for number, (rows, scale) in enumerate(places):
            dropped, down, up = tensors[3 * number : 3 * number + 3]
            assert down is not None and up is not None
            adapted = (x[rows] if dropped is None else dropped).flatten(0, 1)
            hidden = scaled_product(adapted, down.T, scale)
            output[rows].flatten(0, 1).addmm_(hidden, up.T)
            saved += [adapted, hidden, down, up]
        ctx.save_for_backward(weight, *saved)
        ctx.places, ctx.drops = places, [each is not None for each in tensors[::3]]
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        weight, *saved = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_x = gradient @ weight if ctx.needs_input_grad[0] else None
        found: list[torch.Tensor | None] = []
        for number, (rows, scale) in enumerate(ctx.places):
            adapted, hidden, down, up = saved[4 * number : 4 * number + 4]
            own = gradient[rows].flatten(0, 1)
            of_hidden = scaled_product(own, up, scale)
            of_dropped = None
            if ctx.drops[number]:
                of_dropped = (of_hidden @ down).view(*gradient[rows].shape[:-1], -1)
            elif of_x is not None:
                of_x[rows].flatten(0, 1).addmm_(of_hidden, down)
            found += [of_dropped, of_hidden.T @ adapted, own.T @ hidden]
        return of_x, None, None, None, *found
