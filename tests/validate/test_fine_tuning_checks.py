"""Quantized models, further adapters and optimizers that cannot work are refused on the driver, with the fix."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec

import pytest
from composing import composed

from sweeps.errors import ConfigError
from sweeps.validate.argument_checks import check_arguments
from sweeps.validate.config_checks import check_sweep, lookup_in
from sweeps.validate.target_checks import check_targets


def check(*overrides: str) -> None:
    composition = composed("llm_lora", "cluster=local", *overrides)
    space = check_sweep(composition)
    check_targets(composition.config)
    check_arguments(composition, space, lookup_in(composition))


RMSPROP = "train.optimizer={_target_: torch.optim.RMSprop, arguments: {%s}}"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["model.quantization=nf4", "strategy=fsdp"],
            "quantized base cannot be divided by strategy.kind=fsdp; use str",
        ),
        (["model.quantization=choice(none, nf4)", "strategy=fsdp"], "model.quantization=nf4: a quantized base"),
        (["model.quantization=nf5"], r"must be 'none', 'nf4' or 'int8'; did you mean nf4\?"),
        (["train.optimizer=adamww"], r"^train.optimizer='adamww': must be 'adamw', .*; did you mean [^\n]*$"),
        (["train.optimizer=paged_adamw_8bit", "scaling.use_gpu=false"], "use adamw_8bit or adamw"),
        (
            [RMSPROP % "weight_decay: 0.1"],
            "train.optimizer.arguments.weight_decay=0.1 would have no effect: .* get train.weight_decay; set that",
        ),
        ([RMSPROP % "momentun: 0.5"], r"no argument 'momentun'; did you mean momentum\?"),
        (["train.optimizer={_target_: torch.optim.RMSpro}"], "has no 'RMSpro'; did you mean RMSprop"),
        (["train.optimizer={_target_: torch.optim.SGD, momentum: 1}"], "^train.optimizer.momentum=1: there is no such"),
        (["train.precision=fp8"], r"train.precision=fp8: .* even frozen ones, .* use train.precision=bf16"),
        (["train.precision=fp8", "model.lora=null", "strategy=tensor_parallel"], "fp8: layers that strategy.kind=tens"),
        (["train.precision=fp8", "model.lora=null", "scaling.use_gpu=false"], "fp8: needs a GPU, and scaling.use_gpu"),
    ],
)
def test_mistakes_are_named_with_the_fix(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(*overrides)


def test_what_works_is_accepted() -> None:
    check("model.quantization=choice(none, nf4)", "model.lora.use_rslora=choice(true, false)")
    check(RMSPROP % "momentum: 0.5", "++train.optimizer.arguments.alpha=interval(0.9, 0.99)")


def test_8_bit_numbers_are_multiplied_where_torchao_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def with_torchao(name: str, package: str | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, None) if name == "torchao" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", with_torchao)
    check("train.precision=choice(bf16, fp8)", "model.lora=null", "space=none", "strategy=fsdp")


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in ("bitsandbytes", "torchao") else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    check()
    with pytest.raises(ConfigError, match=r"model.quantization=nf4: .*pip install 'ray-sweeps\[quantization\]'"):
        check("model.quantization=nf4")
    with pytest.raises(ConfigError, match=r"train.optimizer=adamw_8bit: bitsandbytes is not installed"):
        check("train.optimizer=adamw_8bit")
    with pytest.raises(ConfigError, match=r"train.precision=fp8: torchao is not .*pip install 'ray-sweeps\[fp8\]'"):
        check("train.precision=fp8", "model.lora=null", "space=none")
