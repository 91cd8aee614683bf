"""Multiplication of 8-bit numbers: which layers and devices have it, and that models still learn, emulated on a CPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from training_runs import TEXT, configured, on_two_workers, run, write_prompts

from sweeps_train import load_model
from sweeps_train.checkpoints import checkpoint_evaluation
from sweeps_train.lanes import lane
from sweeps_train.models import float8
from sweeps_train.models.float8 import check_float8, convert_to_float8

needs_torchao = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="the extra fp8 is not installed")


class Mixture(nn.Module):
    """Linear layers of all kinds that a language model may have."""

    def __init__(self) -> None:
        super().__init__()
        self.up_proj = nn.Linear(32, 64, bias=True)
        self.down_proj = nn.Linear(64, 32)
        self.gate = nn.Linear(32, 16)
        self.odd = nn.Linear(32, 10)
        self.lm_head = nn.Linear(32, 48)

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head


@needs_torchao
def test_layers_are_converted_but_the_head_routers_and_those_of_odd_sizes() -> None:
    model = Mixture()
    before = dict(model.named_parameters())
    convert_to_float8(model, emulate=True)
    kinds = {name: type(layer).__name__ for name, layer in model.named_children()}
    assert kinds == dict.fromkeys(kinds, "Linear") | {"up_proj": "Float8Linear", "down_proj": "Float8Linear"}
    assert all(each is before[name] for name, each in model.named_parameters())
    with pytest.raises(ValueError, match=r"train.precision=fp8: a Sequential has no linear layer whose sizes are"):
        convert_to_float8(nn.Sequential(nn.Linear(8, 10)), emulate=True)


@needs_torchao
def test_a_converted_layer_has_nearly_the_output_and_the_gradients_of_the_plain_one() -> None:
    torch.manual_seed(0)
    plain, converted = nn.Sequential(nn.Linear(64, 32)), nn.Sequential(nn.Linear(64, 32))
    converted.load_state_dict(plain.state_dict())
    convert_to_float8(converted, emulate=True)
    inputs = torch.randn(7, 64)  # not a multiple of 16
    outputs = [model(inputs) for model in (plain, converted)]
    for each in outputs:
        each.square().sum().backward()
    difference = (outputs[0] - outputs[1]).abs().max()
    assert 0 < difference < 0.1  # 8 bits have a mantissa of 3
    exact, rounded = ([each.grad for each in model.parameters()] for model in (plain, converted))
    for one, other in zip(exact, rounded, strict=True):
        assert one is not None
        assert other is not None
        assert (one - other).norm() < 0.1 * one.norm()


@pytest.mark.parametrize(
    ("capability", "able"), [((7, 5), False), ((8, 0), False), ((8, 9), True), ((9, 0), True), ((10, 0), True)]
)
def test_a_gpu_that_cannot_is_refused_with_its_name(
    capability: tuple[int, int], able: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA A100-SXM4-40GB")
    if able:
        check_float8(torch.device("cuda", 0))
    else:
        with pytest.raises(
            ValueError, match=r"fp8: NVIDIA A100-SXM4-40GB does not support 8-bit .* use train.precision=a"
        ):
            check_float8(torch.device("cuda", 0))


def test_amd_gpus_are_known_by_their_architecture_and_other_devices_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(gcnArchName="gfx942:sramecc+:xnack-")
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "AMD Instinct MI210")
    check_float8(torch.device("cuda", 0))
    found.gcnArchName = "gfx90a"
    with pytest.raises(ValueError, match="AMD Instinct MI210"):
        check_float8(torch.device("cuda", 0))
    with pytest.raises(ValueError, match="cpu does not support 8-bit"):
        check_float8(torch.device("cpu"))


def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let trainings on this CPU round to 8 bits."""
    monkeypatch.setattr(lane, "check_float8", lambda device: None)
    monkeypatch.setattr(lane, "convert_to_float8", lambda model: float8.convert_to_float8(model, emulate=True))


WHOLE: dict[str, Any] = {"model": {"lora": None}, "train": {"lr": 1e-3, "precision": "fp8"}}


@needs_torchao
def test_a_language_model_learns_is_saved_and_loads_as_a_plain_one(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_prompts(working_folder)
    emulated(monkeypatch)
    in_8_bits = run(configured(TEXT, **WHOLE), working_folder / "8")
    in_16_bits = run(configured(TEXT, **{**WHOLE, "train": {"lr": 1e-3, "precision": "bf16"}}), working_folder / "16")
    assert in_8_bits.eval_losses[-1] < in_8_bits.eval_losses[0]
    assert in_8_bits.final["eval/loss"] != in_16_bits.final["eval/loss"]
    assert in_8_bits.final["eval/loss"] == pytest.approx(in_16_bits.final["eval/loss"], rel=0.02)
    saved = load_model(working_folder / "8" / "step-00000008")
    assert {type(each).__name__ for each in saved.modules() if isinstance(each, nn.Linear)} == {"Linear"}


@pytest.mark.parametrize("able", [True, False])
def test_a_checkpoint_is_evaluated_as_its_training_would_where_the_device_can(
    able: bool, working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    converted: list[nn.Module] = []
    trained: list[Any] = []
    monkeypatch.setattr(lane, "check_float8", trained.append)
    monkeypatch.setattr(lane, "convert_to_float8", trained.append)
    monkeypatch.setattr(checkpoint_evaluation, "multiplies_float8", lambda device: able)
    monkeypatch.setattr(checkpoint_evaluation, "convert_to_float8", converted.append)
    write_prompts(working_folder)
    run(configured(TEXT, model={"lora": None}, train={"max_steps": 1, "precision": "fp8"}), working_folder / "8")
    assert [type(each).__name__ for each in trained] == ["device", "LlamaForCausalLM"]
    metrics = checkpoint_evaluation.evaluate_checkpoint(working_folder / "8" / "step-00000001")
    assert metrics["eval/loss"] > 0
    assert [type(each).__name__ for each in converted] == ["LlamaForCausalLM"] * able


def losses_of_two_workers() -> list[float]:
    with pytest.MonkeyPatch.context() as patch:
        emulated(patch)
        config = configured(TEXT, **WHOLE, strategy={"kind": "fsdp"})
        return run(config).eval_losses


@needs_torchao
@pytest.mark.slow
def test_fsdp_has_the_losses_of_one_worker(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_prompts(working_folder)
    sharded = on_two_workers(losses_of_two_workers, working_folder)[0]
    emulated(monkeypatch)
    assert sharded == pytest.approx(run(configured(TEXT, **WHOLE)).eval_losses, rel=0.01)
