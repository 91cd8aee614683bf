"""A frozen linear layer with the adapters of several lanes, each applied to the rows of its own lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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
    """Tokens in the lane's own batch; the rest is padding."""
    dropout: Callable[[torch.Tensor, float], torch.Tensor]
    """Dropout with the lane's random numbers."""


class _Adapter(NamedTuple):
    """One lane's adapter of a layer, and its inputs."""

    rows: slice
    dropped: torch.Tensor | None
    """Inputs after dropout; None without dropout."""
    down: torch.Tensor
    up: torch.Tensor
    scale: float


class JointLinear(nn.Module):
    """Computes ``x W' + b`` for all rows at once, and adds each lane's ``scale * dropout(x) A' B'`` to that lane's
    rows."""

    def __init__(self, base: nn.Linear, parts: list[Part], scales: dict[tuple[float, ...], torch.Tensor]):
        """Wrap a frozen layer. All layers of an owner have the same ``parts``, the rows of the lanes in the current
        batch, which the owner fills; and the same ``scales`` of adapters, by their values: on the device, in the shape
        (lanes, 1, 1)."""
        super().__init__()
        self.base = base
        self._parts, self._scales = parts, scales
        self.adapted: Sequence[FusedLinear | None] = ()
        """The same layer in each lane's own model; None if a lane does not adapt it."""

    @property
    def weight(self) -> torch.Tensor:
        """Frozen weight, for models that read it instead of calling the layer; peft's layers have it, too."""
        return self.base.weight

    @property
    def bias(self) -> torch.Tensor | None:
        """Frozen bias."""
        return self.base.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not tells_rows_apart(x, self._parts[-1].rows.stop):
            raise ValueError(
                "model.lora.target_modules: a layer's inputs do not have the shape (samples, tokens, width), so the "
                "samples of several trials cannot be told apart; use scaling.trials_per_group=1"
            )
        device = x.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
        # As a layer alone, which drops inputs after their cast only if it is fused.
        to_drop = x.to(dtype) if self.weight.dtype == dtype else x
        x, weight = x.to(dtype), self.weight.to(dtype)
        bias = None if self.bias is None else self.bias.to(dtype)
        adapters = [
            _adapter(to_drop, dtype, part, layer)
            for part in self._parts
            if (layer := self.adapted[part.lane]) is not None
        ]
        product: torch.Tensor
        if device in STACKED_ON and len(adapters) == len(self._parts) and _have_as_many_rows(adapters):
            dropped = None
            if any(each.dropped is not None for each in adapters):
                dropped = torch.cat([x[each.rows] if each.dropped is None else each.dropped for each in adapters])
            scales = tuple(each.scale for each in adapters)
            if scales not in self._scales:  # a copy, which a GPU waits for, and which no CUDA graph can record
                self._scales[scales] = torch.tensor(scales, dtype=torch.float32, device=x.device).view(-1, 1, 1)
            down, up = (each.to(dtype) for each in _stacked(adapters))
            product = _StackedProduct.apply(  # type: ignore[no-untyped-call]
                x, dropped, weight, bias, down, up, self._scales[scales]
            )
            return product
        tensors = [each for a in adapters for each in (a.dropped, a.down.to(dtype), a.up.to(dtype))]
        places = [(each.rows, each.scale) for each in adapters]
        product = _JointProduct.apply(x, weight, bias, places, *tensors)  # type: ignore[no-untyped-call]
        return product


STACKED_ON: set[str] = {"cuda"}
"""Kinds of devices on which lanes with equal numbers of rows are computed in batched products, with as many kernels as
one lane. On CPUs, one product per lane takes 0 to 10% longer, and rounds like a lane that trains alone."""


def tells_rows_apart(x: torch.Tensor, rows: int) -> bool:
    """Whether a layer's inputs have the shape (samples, tokens, width), for this number of samples."""
    return x.dim() == 3 and x.shape[0] == rows


def _adapter(x: torch.Tensor, dtype: torch.dtype, part: Part, layer: FusedLinear) -> _Adapter:
    (name,) = layer.lora_A
    down, up = (each[name].weight for each in (layer.lora_A, layer.lora_B))
    assert isinstance(down, torch.Tensor) and isinstance(up, torch.Tensor)
    p, dropped = getattr(layer.lora_dropout[name], "p", 0.0), None
    if p > 0 and layer.training:  # drawn for the lane's own tokens alone
        # Contiguous as alone: GPUs draw another mask for a view with gaps.
        own = part.dropout(x[part.rows, : part.length].contiguous(), p)
        dropped = functional.pad(own.to(dtype), (0, 0, 0, x.shape[1] - part.length))
    return _Adapter(part.rows, dropped, down, up, layer.scaling[name])


def _have_as_many_rows(adapters: Sequence[_Adapter]) -> bool:
    return len({each.rows.stop - each.rows.start for each in adapters}) == 1


def _stacked(adapters: Sequence[_Adapter]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both adapter weights of all lanes, stacked; lower ranks are padded with zeros, which add nothing."""
    rank = max(len(each.down) for each in adapters)
    lacking = [rank - len(each.down) for each in adapters]
    down = [
        functional.pad(each.down, (0, 0, 0, n)) if n else each.down for each, n in zip(adapters, lacking, strict=True)
    ]
    up = [functional.pad(each.up, (0, n)) if n else each.up for each, n in zip(adapters, lacking, strict=True)]
    return torch.stack(down), torch.stack(up)


class _JointProduct(torch.autograd.Function):
    """Autograd function of ``JointLinear``, which computes the gradients of the input and of all lanes' adapters."""

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


class _StackedProduct(torch.autograd.Function):
    """``_JointProduct`` for lanes with equal numbers of rows, whose adapters are stacked along a first dimension."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        dropped: torch.Tensor | None,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        down: torch.Tensor,
        up: torch.Tensor,
        scales: torch.Tensor,
    ) -> torch.Tensor:
        output, lanes = functional.linear(x, weight, bias), len(down)
        adapted = (x if dropped is None else dropped).reshape(lanes, -1, x.shape[-1])
        hidden = torch.bmm(adapted, down.mT).mul_(scales)
        output.view(lanes, -1, output.shape[-1]).baddbmm_(hidden, up.mT)
        ctx.save_for_backward(adapted, hidden, weight, down, up, scales)
        ctx.drops = dropped is not None
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        adapted, hidden, weight, down, up, scales = ctx.saved_tensors
        gradient = gradient.contiguous()
        own = gradient.view(len(down), -1, gradient.shape[-1])
        of_hidden = torch.bmm(own, up).mul_(scales)
        of_x = of_dropped = None
        if ctx.needs_input_grad[0]:
            of_x = gradient @ weight
            if not ctx.drops:
                of_x.view(adapted.shape).baddbmm_(of_hidden, down)
        if ctx.drops:
            of_dropped = torch.bmm(of_hidden, down).view(*gradient.shape[:-1], -1)
        return of_x, of_dropped, None, None, torch.bmm(of_hidden.mT, adapted), torch.bmm(own.mT, hidden), None
