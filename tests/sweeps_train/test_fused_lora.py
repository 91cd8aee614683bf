"""Adapted layers that compute with fewer kernels, compared with those of peft."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import Linear
from torch import nn

from sweeps_train.models.fused_lora import FusedLinear, fuse_lora


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def adapted(*, bias: bool = True, dtype: torch.dtype = torch.float32, **options: object) -> nn.Module:
    """Two adapted layers with adapters that are not zero."""
    base = nn.Sequential(nn.Linear(6, 8, bias=bias), nn.Tanh(), nn.Linear(8, 4, bias=bias)).to(dtype)
    model = get_peft_model(base, LoraConfig(r=2, lora_alpha=6, target_modules=["0", "2"], **options))  # type: ignore[arg-type]
    for name, each in model.named_parameters():
        if "lora_" in name:
            nn.init.normal_(each.data)
            each.data = each.data.float()
    return model


def passed(model: nn.Module, inputs: torch.Tensor, autocast: bool = False) -> list[torch.Tensor]:
    """Output, and gradients of the input and of the adapters."""
    inputs = inputs.clone().requires_grad_()
    torch.manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        output = model(inputs)
    trained = [each for each in model.parameters() if each.requires_grad]
    gradients = torch.autograd.grad(output.float().square().sum(), [inputs, *trained])
    return [output.detach(), *gradients]


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"lora_dropout": 0.5}, {"use_rslora": True}], ids=str)
def test_outputs_and_gradients_are_those_of_peft(options: dict[str, object]) -> None:
    model, inputs = adapted(**options), torch.randn(3, 5, 6)  # type: ignore[arg-type]
    expected = passed(model, inputs)
    fuse_lora(model)
    assert sum(isinstance(each, FusedLinear) for each in model.modules()) == 2
    torch.testing.assert_close(passed(model, inputs), expected, rtol=1e-5, atol=1e-4)


def test_a_base_of_16_bits_under_autocast_has_adapters_of_32_with_gradients_of_32() -> None:
    model, inputs = adapted(dtype=torch.bfloat16), torch.randn(3, 5, 6)
    of_peft = passed(model, inputs, autocast=True)
    exact = passed(copy.deepcopy(model).float(), inputs)
    fuse_lora(model)
    found = passed(model, inputs, autocast=True)
    assert [each.dtype for each in found] == [each.dtype for each in of_peft]
    for ours, theirs, right in zip(found, of_peft, exact, strict=True):
        assert (ours - right).norm() <= 1.5 * (theirs - right).norm() + 0.01 * right.norm()


def test_an_input_without_gradient_has_adapters_that_have_them() -> None:
    model = adapted()
    fuse_lora(model)
    model(torch.randn(2, 6)).sum().backward()
    assert all(each.grad is not None for each in model.parameters() if each.requires_grad)


def test_merged_and_disabled_adapters_compute_as_with_peft() -> None:
    model, inputs = adapted(), torch.randn(5, 6)
    fuse_lora(model)
    adapters, expected = model(inputs), model.get_base_model()
    with model.disable_adapter():  # type: ignore[operator]
        plain = model(inputs)
    assert not torch.allclose(plain, adapters)
    merged = model.merge_and_unload()  # type: ignore[operator]
    torch.testing.assert_close(merged(inputs), adapters)
    assert expected is merged


def test_layers_of_other_kinds_stay_as_they_are() -> None:
    model = adapted(use_dora=True)
    fuse_lora(model)
    assert {type(each) for each in model.modules() if isinstance(each, Linear)} == {Linear}
