"""A frozen layer with the adapters of several lanes, compared with each lane's own layer on its own rows."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

from sweeps_train.lanes import joint_linear
from sweeps_train.lanes.joint_linear import JointLinear, Part
from sweeps_train.lanes.joint_model import join
from sweeps_train.lanes.own_random_numbers import OwnRandomNumbers
from sweeps_train.models.fused_lora import FusedLinear, fuse_lora

CPU = torch.device("cpu")
BASE = nn.Linear(6, 5)


def layer_of(rank: int, dropout: float, seed: int, dtype: torch.dtype) -> FusedLinear:
    base = nn.Sequential(nn.Linear(6, 5))
    base[0].weight, base[0].bias = (nn.Parameter(each.detach().to(dtype)) for each in (BASE.weight, BASE.bias))
    settings: Any = {"r": rank, "lora_alpha": 3 * rank + seed, "lora_dropout": dropout, "target_modules": ["0"]}
    model: Any = get_peft_model(base, LoraConfig(**settings))
    fuse_lora(model)
    layer: FusedLinear = model.base_model.model[0]
    with torch.no_grad():
        for name in ("lora_A", "lora_B"):
            weight = getattr(layer, name)["default"].weight
            weight.data = torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed))
    return layer


def alone(layer: FusedLinear | None, x: torch.Tensor, seed: int) -> list[torch.Tensor]:
    """Output, and gradients of the input and of the adapter, with the random numbers of a process."""
    x = x.clone().requires_grad_()
    torch.manual_seed(seed)
    output = BASE.to(x.dtype)(x) if layer is None else layer(x)
    trained = [] if layer is None else [layer.lora_A["default"].weight, layer.lora_B["default"].weight]
    return [output.detach(), *torch.autograd.grad(output.float().square().sum(), [x, *trained])]


CASES: dict[str, list[tuple[int, float, int, int] | None]] = {
    "alike": [(4, 0.0, 2, 7), (4, 0.0, 2, 7), (4, 0.0, 2, 7)],
    "alike, some with dropout": [(4, 0.5, 2, 7), (4, 0.0, 2, 7), (4, 0.3, 2, 7)],
    "lengths": [(4, 0.5, 2, 3), (4, 0.5, 2, 7), (4, 0.0, 2, 5)],
    "ranks": [(2, 0.5, 2, 7), (4, 0.0, 2, 7), (8, 0.0, 2, 7)],
    "rows": [(4, 0.0, 1, 7), (4, 0.5, 3, 7), (4, 0.0, 2, 7)],
    "one that leaves the layer alone": [(4, 0.5, 2, 7), None, (4, 0.0, 2, 7)],
}
"""Rank, dropout, rows and tokens of each lane."""


@pytest.mark.parametrize(("dtype", "autocast"), [(torch.float32, False), (torch.bfloat16, True), (torch.float32, True)])
@pytest.mark.parametrize("stacks", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_each_lane_has_the_outputs_and_gradients_of_its_own_layer(
    case: str, stacks: bool, dtype: torch.dtype, autocast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joint_linear, "STACKED_ON", {"cpu"} if stacks else set())
    layers, inputs, parts, expected, start = [], [], [], [], 0
    drawn_for: set[Any] = set()
    """Dtypes that dropout had to draw for, and whether tensors were contiguous: on these depend a GPU's masks."""

    def drop(own: OwnRandomNumbers, x: torch.Tensor, p: float) -> torch.Tensor:
        drawn_for.add((x.dtype, x.is_contiguous()))
        return own.dropout(x, p)

    with torch.random.fork_rng(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        for number, lane in enumerate(CASES[case]):
            rank, dropout, rows, length = lane or (4, 0.0, 2, 7)
            layers.append(None if lane is None else layer_of(rank, dropout, number, dtype))
            inputs.append(torch.randn(rows, length, 6, generator=torch.Generator().manual_seed(9 + number)).to(dtype))
            expected.append(alone(layers[-1], inputs[-1], number))
            numbers = OwnRandomNumbers(CPU)
            torch.manual_seed(number)
            numbers.restore({**numbers_of_process(), "python": None, "numpy": None})
            parts.append(Part(number, slice(start, start := start + rows), length, functools.partial(drop, numbers)))
        base = nn.Linear(6, 5)
        base.weight, base.bias = (
            nn.Parameter(each.detach().to(dtype), requires_grad=False) for each in (BASE.weight, BASE.bias)
        )
        joint = JointLinear(base, parts, {})
        joint.adapted = layers
        longest = max(part.length for part in parts)
        x = torch.cat([nn.functional.pad(each, (0, 0, 0, longest - each.shape[1])) for each in inputs]).requires_grad_()
        output = joint(x)
        outputs = [output[part.rows, : part.length] for part in parts]
        trained = [
            weight
            for layer in layers
            if layer is not None
            for weight in (layer.lora_A["default"].weight, layer.lora_B["default"].weight)
        ]
        total = torch.stack([each.float().square().sum() for each in outputs]).sum()
        of_x, *of_trained = torch.autograd.grad(total, [x, *trained])
    for part, layer, wanted, found in zip(parts, layers, expected, outputs, strict=True):
        mine = [of_trained.pop(0) for _ in range(0 if layer is None else 2)]
        for each, own in zip([found.detach(), of_x[part.rows, : part.length], *mine], wanted, strict=True):
            assert (each - own).abs().max() <= (0.03 if autocast else 1e-5) * own.abs().max()
    assert drawn_for == ({(dtype, True)} if any(lane and lane[1] for lane in CASES[case]) else set())


def numbers_of_process() -> dict[str, Any]:
    return {"torch": torch.get_rng_state()}


def test_adapters_in_16_bits_have_exact_scales_which_are_copied_once_for_all_layers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    products: list[Any] = []
    monkeypatch.setattr(joint_linear, "STACKED_ON", {"cpu"})
    monkeypatch.setattr(joint_linear, "_StackedProduct", SimpleNamespace(apply=lambda *args: products.append(args)))
    both = [Part(number, slice(number, number + 1), 4, lambda x, _: x) for number in (0, 1)]
    parts, scales = list(both), dict[Any, Any]()
    layers = [JointLinear(nn.Linear(6, 5, dtype=torch.bfloat16), parts, scales) for _ in range(2)]
    for layer in layers:
        layer.adapted = [layer_of(12, 0.0, seed, torch.bfloat16) for seed in (1, 2)]  # scales 37 / 12 and 38 / 12
    for present in (both, both[:1], both):  # micro batches of both lanes, and of the one that has more of them
        parts[:] = present
        for layer in layers:
            layer(torch.zeros(len(present), 4, 6, dtype=torch.bfloat16))
    copies = [each[-1] for each in products]
    assert copies[0].flatten().tolist() == pytest.approx([37 / 12, 38 / 12], rel=1e-6)
    assert [each is copies[0] for each in copies] == [True, True, False, False, True, True]
    assert copies[2] is copies[3]


def test_inputs_without_rows_of_samples_are_refused() -> None:
    joint = JointLinear(BASE, [Part(0, slice(0, 2), 3, lambda x, _: x)], {})
    joint.adapted = [None]
    with pytest.raises(ValueError, match=r"target_modules: a layer's inputs do not have the shape"):
        joint(torch.zeros(6, 6))


def test_own_random_numbers_continue_from_their_state_and_leave_those_of_the_process_alone() -> None:
    numbers, x = OwnRandomNumbers(CPU), torch.ones(4, 5)
    before = torch.get_rng_state()
    numbers.seed(1, 2)
    numbers.dropout(x, 0.5)
    state = numbers.state()
    expected = numbers.dropout(x, 0.5)
    numbers.restore(state)
    assert torch.equal(numbers.dropout(x, 0.5), expected)
    assert torch.equal(torch.get_rng_state(), before)


def test_documents_of_shorter_batches_end_with_the_longest() -> None:
    batches = [
        {"input_ids": torch.ones(1, 4), "targets": torch.ones(1, 4), "document_ends": torch.tensor([[2, 4]])},
        {"input_ids": torch.ones(1, 4), "targets": torch.ones(1, 4), "document_ends": torch.tensor([[4]])},
    ]
    assert join(batches)["document_ends"].tolist() == [[2, 4], [4, 4]]
