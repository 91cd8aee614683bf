"""Floating-point operations, counted by torch's formulas (``torch.utils.flop_counter``) and one of our own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

ATTENTION = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)
"""Operators of fused attention; the gradients of each are computed by another operator, ``_backward``. Their first
arguments are query, key and value; those of ``_backward`` are preceded by the gradient of the output."""


class FlopCount(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the floating-point operations within its context.

    Torch's own ``FlopCounterMode`` lets an error of a formula end the counted code. It lacks formulas for fused
    attention on CPUs and, before torch 2.13, for grouped-query attention.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._total = 0
        self._error: Exception | None = None
        """First error of a formula; the total lacks the operations of that operator."""
        self._formulas: Mapping[Any, Callable[..., int]] = {**flop_registry, **_attention_formulas()}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = getattr(func, "_overloadpacket", func)
        if packet not in self._formulas and _is_composite(func):
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        output = func(*args, **kwargs)
        formula = self._formulas.get(packet)
        if formula is not None:
            try:
                self._total += formula(*args, **kwargs, out_val=output)
            except Exception as error:  # noqa: BLE001 - the operation itself has succeeded
                self._error = self._error or error
        return output

    def take(self) -> int:
        """Return the number of operations so far.

        Raises:
            Exception: A formula has failed.
        """
        if self._error is not None:
            raise self._error
        return self._total


@functools.cache
def _is_composite(operator: Any) -> bool:
    """Whether an operator only calls other operators. Many operators with a kernel can also be decomposed into others,
    which would need more memory than the training does: the gradient of SiLU would have seven tensors instead of
    one."""
    if not isinstance(operator, torch._ops.OpOverload) or operator is torch.ops.prim.device.default:
        return False
    name = operator._schema.name + (f".{overload}" if (overload := operator._schema.overload_name) else "")
    return not any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in ("CPU", "CUDA"))


def _attention_formulas() -> dict[Any, Callable[..., int]]:
    """Return the formulas of fused attention, for the operators that this release of torch has."""
    formulas: dict[Any, Callable[..., int]] = {}
    for name in ATTENTION:
        if hasattr(torch.ops.aten, name):
            formulas[getattr(torch.ops.aten, name)] = _forward
            formulas[getattr(torch.ops.aten, f"{name}_backward")] = _backward
    return formulas


def _forward(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> int:
    return attention_flops(query.shape, key.shape, value.shape)


def _backward(_: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *__: Any, **___: Any) -> int:
    return 2 * attention_flops(query.shape, key.shape, value.shape)


def attention_flops(query: Sequence[int], key: Sequence[int], value: Sequence[int]) -> int:
    """Return the number of operations of attention's two matrix products. Their gradients take twice as many;
    operations that a kernel recomputes for the gradients are not counted.

    Masks do not count: torch's own formulas ignore them, too.

    Args:
        query: Shape: samples, heads, length, width.
        key: Shape as for the query. Its heads may be fewer: groups of query heads share one (grouped-query attention).
        value: Shape as for the key; its width may differ.
    """
    samples, heads, length, width = query
    return 2 * samples * heads * length * key[2] * (width + value[3])
