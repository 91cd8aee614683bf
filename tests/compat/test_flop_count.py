"""Contract with torch's formulas of floating-point operations: a failure here says which name has moved."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import flop_counter

from sweeps_train.compat.fake_tensors import PeakMemory
from sweeps_train.compat.flop_count import ATTENTION, FlopCount, attention_flops

QUERY, KEY, VALUE = (2, 8, 16, 32), (2, 2, 24, 32), (2, 2, 24, 32)
"""Eight query heads, of which groups of four share a key head and a value head."""
PRODUCTS = 2 * 8 * (2 * 16 * 24 * 32 + 2 * 16 * 24 * 32)
"""Operations of both matrix products, by hand: each of samples x heads is multiplied on its own."""


def attend(backend: SDPBackend) -> FlopCount:
    query, key, value = (torch.randn(shape, requires_grad=True) for shape in (QUERY, KEY, VALUE))
    with sdpa_kernel(backend), FlopCount() as count:
        functional.scaled_dot_product_attention(query, key, value, enable_gqa=True).sum().backward()
    return count


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], ids=["plain", "fused"])
def test_grouped_query_attention_counts_as_much_in_a_fused_kernel_as_in_plain_ones(backend: SDPBackend) -> None:
    try:
        count = attend(backend)
    except RuntimeError as error:
        if backend is SDPBackend.MATH or "No available kernel" not in str(error):
            raise
        pytest.skip("this torch has no fused kernel of grouped queries for CPUs")
    assert count.take() == 3 * PRODUCTS  # the gradients take twice as many as the output


def test_every_fused_operator_is_counted_with_fewer_key_heads() -> None:
    """By the formulas alone, since most of these kernels are those of GPUs."""
    count = FlopCount()
    query, key, value = (torch.empty(shape) for shape in (QUERY, KEY, VALUE))
    found = [name for name in ATTENTION if hasattr(torch.ops.aten, name)]
    assert len(found) >= 4, "torch.ops.aten._scaled_dot_product_*_attention"
    for name in found:
        forward, backward = (getattr(torch.ops.aten, each) for each in (name, f"{name}_backward"))
        arguments = [each.name for each in backward.default._schema.arguments[:4]]
        assert [each.strip("_") for each in arguments] in [
            ["grad_out", "query", "key", "value"],
            ["grad", "query", "key", "value"],
        ], name
        assert count._formulas[forward](query, key, value, out_val=query) == PRODUCTS
        assert count._formulas[backward](query, query, key, value, out_val=query) == 2 * PRODUCTS


def test_values_may_be_wider_than_keys() -> None:
    assert attention_flops((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 6)) == 2 * (2 * 3 * 5 * 4 + 2 * 3 * 5 * 6)


def test_other_operations_are_counted_by_torchs_formulas() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 5))
    inputs = torch.randn(2, 3, 8, 8)
    with FlopCount() as own:
        model(inputs).sum().backward()
    with flop_counter.FlopCounterMode(display=False) as theirs:
        model(inputs).sum().backward()
    assert own.take() == theirs.get_total_flops() > 0


def test_a_formula_that_fails_does_not_end_what_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> int:
        raise AssertionError("shapes are incompatible")

    monkeypatch.setitem(flop_counter.flop_registry, torch.ops.aten.mm, fails)
    left, right = torch.ones(2, 3), torch.ones(3, 4)
    with FlopCount() as count:
        product = left @ right
    assert product.tolist() == [[3.0] * 4] * 2
    with pytest.raises(AssertionError, match="shapes are incompatible"):
        count.take()


def test_an_error_of_an_operation_passes() -> None:
    with pytest.raises(RuntimeError, match="cannot be multiplied"), FlopCount():
        torch.ones(2, 3) @ torch.ones(2, 3)


def test_counting_needs_no_more_memory_than_what_is_counted() -> None:
    def peak(context: AbstractContextManager[object]) -> int:
        gate = torch.ones(64, 64, requires_grad=True)
        with PeakMemory() as memory, context:
            nn.functional.silu(gate).sum().backward()
        return memory.peak

    assert peak(FlopCount()) == peak(nullcontext())
