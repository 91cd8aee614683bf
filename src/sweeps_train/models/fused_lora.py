"""Linear layers with an adapter in fewer kernels: one kernel adds the adapter's product to that of the frozen weight.

peft's layer scales and adds in separate kernels, each of which reads and writes tensors of the size of the layer's
output, or of its input in the backward pass. With small batches, steps wait for the kernels' launches.
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora import Linear
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from sweeps_train.compat.torch import is_dtensor


def fuse_lora(model: nn.Module) -> None:
    """Replace a model's adapted layers by fused ones where possible; others stay as peft made them."""
    for module in model.modules():
        if _can_be_fused(module):
            module.__class__ = FusedLinear


def _can_be_fused(module: nn.Module) -> bool:
    """Whether a layer is peft's, with one plain adapter on a torch linear layer."""
    if type(module) is not Linear or type(module.base_layer) is not nn.Linear or len(module.lora_A) != 1:
        return False
    (name,) = module.lora_A
    is_variant = bool(getattr(module, "lora_variant", {})) or any(getattr(module, "use_dora", {}).values())
    return not is_variant and module.lora_B[name].bias is None


class FusedLinear(Linear):
    """A layer of peft that computes ``x W' + b + scale * dropout(x) A' B'`` by ``_FusedProduct``."""

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        weight, device = self.base_layer.weight, x.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
        (name,) = self.lora_A
        down, up = self.lora_A[name].weight, self.lora_B[name].weight
        is_other = args or kwargs or self.merged or self.disable_adapters or is_dtensor(weight)
        if is_other or weight.dtype != dtype or is_dtensor(down):
            unfused: torch.Tensor = super().forward(x, *args, **kwargs)
            return unfused
        x = x.to(dtype)
        dropout = self.lora_dropout[name]
        has_dropout = self.training and getattr(dropout, "p", 0.0) > 0
        product: torch.Tensor = _FusedProduct.apply(  # type: ignore[no-untyped-call]
            x,
            dropout(x) if has_dropout else None,
            weight,
            self.base_layer.bias,
            down.to(dtype),
            up.to(dtype),
            self.scaling[name],
        )
        return product


class _FusedProduct(torch.autograd.Function):
    """Autograd function of ``FusedLinear``, which computes the gradients of the input and of the adapter. All tensors
    have the same dtype; products sum in float32."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        dropped: torch.Tensor | None,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        down: torch.Tensor,
        up: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        adapted = rows if dropped is None else dropped.reshape(rows.shape)
        output = functional.linear(rows, weight, bias)
        hidden = scaled_product(adapted, down.T, scale)
        output.addmm_(hidden, up.T)
        ctx.save_for_backward(adapted, hidden, weight, down, up)
        ctx.scale, ctx.drops = scale, dropped is not None
        return output.view(*x.shape[:-1], output.shape[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        adapted, hidden, weight, down, up = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        of_hidden = scaled_product(rows, up, ctx.scale)
        of_x = of_dropped = None
        if ctx.needs_input_grad[0]:
            of_x = rows @ weight
            if not ctx.drops:
                of_x.addmm_(of_hidden, down)
            of_x = of_x.view(*gradient.shape[:-1], -1)
        if ctx.drops and ctx.needs_input_grad[1]:
            of_dropped = (of_hidden @ down).view(*gradient.shape[:-1], -1)
        return of_x, of_dropped, None, None, of_hidden.T @ adapted, rows.T @ hidden, None


def scaled_product(first: torch.Tensor, second: torch.Tensor, scale: float) -> torch.Tensor:
    """Return the product of two matrices times a number, in one kernel."""
    return torch.addmm(first.new_zeros(()), first, second, beta=0, alpha=scale)
