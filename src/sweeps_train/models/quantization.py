"""Base models in 4 or 8 bits: bitsandbytes' configuration, and layers of the same size for tensors without values."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional

BLOCK, NESTED_BLOCK = 64, 256
"""Number of weights that share a scale in 4 bits, and of scales that share a second-level scale (double
quantization)."""


def bitsandbytes_config(quantization: Literal["nf4", "int8"]) -> Any:
    """Return the configuration of bitsandbytes for transformers."""
    from transformers import BitsAndBytesConfig

    if quantization == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)  # type: ignore[no-untyped-call]
    return BitsAndBytesConfig(  # type: ignore[no-untyped-call]
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True
    )


def quantize_blank(model: Any, quantization: Literal["nf4", "int8"]) -> None:
    """Replace the layers that transformers would quantize in a language model with fake tensors, in place."""
    from transformers.quantizers.base import get_keys_to_not_convert
    from transformers.quantizers.quantizers_utils import should_convert_module

    kept = get_keys_to_not_convert(model)
    for name, module in list(model.named_modules()):
        if type(module) is nn.Linear and should_convert_module(name, kept):
            model.set_submodule(name, BlankQuantizedLinear(module, quantization))


class BlankQuantizedLinear(nn.Linear):
    """A linear layer with the same tensors as one of bitsandbytes. Its weight is dequantized for each multiplication,
    to 16 bits or the model's dtype."""

    def __init__(self, layer: nn.Linear, quantization: Literal["nf4", "int8"]):
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.bias = layer.in_features, layer.out_features, layer.bias
        self._dtype = layer.weight.dtype
        number = layer.weight.numel()
        if quantization == "int8":
            packed = torch.empty(layer.weight.shape, dtype=torch.int8)
            scales = [torch.empty(self.out_features)]
        else:
            blocks = math.ceil(number / BLOCK)
            packed = torch.empty((math.ceil(number / 2), 1), dtype=torch.uint8)
            nested = math.ceil(blocks / NESTED_BLOCK)
            # The last are the 16 values that weights have.
            scales = [torch.empty(blocks, dtype=torch.uint8), torch.empty(nested), torch.empty(16)]
        self.weight = nn.Parameter(packed, requires_grad=False)
        for index, each in enumerate(scales):
            self.register_buffer(f"scales_{index}", each, persistent=False)

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - torch's name
        multiplied: torch.Tensor = _Multiplication.apply(input.to(self._dtype), self)  # type: ignore[no-untyped-call]
        return multiplied.to(input.dtype)

    @property
    def W_q(self) -> torch.Tensor:  # noqa: N802 - PEFT calls ``dequantize`` of layers that have it, for DoRA's norms
        """The quantized weight."""
        return self.weight

    def dequantize(self) -> torch.Tensor:
        """Return the dequantized weight, newly allocated."""
        return torch.empty((self.out_features, self.in_features), dtype=self._dtype)


class _Multiplication(torch.autograd.Function):
    """Matrix product that keeps no tensor for the backward pass: the frozen weight needs no gradient, and is
    dequantized again."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, layer: BlankQuantizedLinear) -> torch.Tensor:
        ctx.layer = layer
        return functional.linear(inputs, layer.dequantize(), layer.bias)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient @ ctx.layer.dequantize(), None
