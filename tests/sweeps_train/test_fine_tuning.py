"""Quantized base models, further kinds of LoRA, and further optimizers."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from training_runs import DURING_EVALUATION_AT_STEP_4, TEXT, Recorder, configured, on_two_workers, run, write_prompts

from sweeps_train import load_model, worker_cache
from sweeps_train.config import CausalLM, Lora
from sweeps_train.models.causal_lm import build_causal_lm

pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),  # peft's
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated"),  # of bitsandbytes' imports
]
TOKENS = torch.arange(3, 60).unsqueeze(0)
ADAPTERS = {"r": 4, "dropout": 0.2, "target_modules": "attention"}


def tiny(**options: Any) -> CausalLM:
    return CausalLM(**{"kind": "causal_lm", "path": "builtin:tiny_llama", "lora": Lora(), **options})


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    result: torch.Tensor = model.eval()(TOKENS).logits
    return result


def trained(model: dict[str, Any], folder: Path, train: dict[str, Any] | None = None, **options: Any) -> Recorder:
    return run(configured(TEXT, model=model, train=train or {}), folder, **options)


def curve(recorder: Recorder) -> list[float]:
    return [metrics["eval/loss"] for _, metrics, _, _ in recorder.reports]


@pytest.mark.parametrize("quantization", ["nf4", pytest.param("int8", marks=pytest.mark.slow)])
def test_a_quantized_base_has_small_weights_and_adapters_learn_on_it(quantization: str, working_folder: Path) -> None:
    write_prompts(working_folder)
    plain = build_causal_lm(tiny())
    quantized = build_causal_lm(tiny(quantization=quantization))
    sizes = [
        sum(each.numel() * each.element_size() for name, each in model.named_parameters() if "layers" in name)
        for model in (plain, quantized)
    ]
    assert sizes[1] < (0.35 if quantization == "int8" else 0.25) * sizes[0]  # adapters and norms included
    assert 0 < (logits(quantized) - logits(plain)).abs().max() < 4

    whole = curve(trained({"quantization": quantization}, working_folder / "whole"))
    assert whole[-1] < whole[0]
    trained({"quantization": quantization}, working_folder / "parts", stop_when_asked=DURING_EVALUATION_AT_STEP_4)
    resumed = curve(trained({"quantization": quantization}, working_folder / "parts", resume=True))
    assert resumed[-1] == whole[-1]

    checkpoint = working_folder / "whole" / "step-00000008"
    assert (checkpoint / "adapter_model.safetensors").stat().st_size < 100_000  # and no base
    merged, adapted = load_model(checkpoint, merge=True), load_model(checkpoint)
    assert {each.dtype for each in merged.parameters()} == {torch.float32}
    torch.testing.assert_close(merged.model.norm.weight, plain.get_base_model().model.norm.weight)
    assert 0 < (logits(adapted) - logits(merged)).abs().max() < 4  # merged into the base as it was before


def test_a_warm_worker_keeps_a_quantized_base_for_trials_of_the_same_and_frees_it_for_others(
    working_folder: Path,
) -> None:
    write_prompts(working_folder)
    step = {"max_steps": 1, "eval_every": 1}
    first = curve(trained({"quantization": "nf4"}, working_folder / "1", step))
    base: Any = worker_cache._cache["base model"][1]
    bare = weakref.ref(base._model)
    del base
    trained({"quantization": "nf4", "lora": {"r": 2, "use_dora": True}}, working_folder / "2", step)
    assert bare() is not None
    again = curve(trained({"quantization": "nf4"}, working_folder / "3", step))
    assert again == first

    trained({}, working_folder / "4", step)
    gc.collect()
    assert bare() is None


@pytest.mark.slow
@pytest.mark.parametrize("lora", [{"use_rslora": True}, {"use_dora": True}, {"modules_to_save": ["embed_tokens"]}])
def test_further_kinds_of_lora_are_trained_saved_resumed_and_merged(lora: dict[str, Any], working_folder: Path) -> None:
    write_prompts(working_folder)
    plain = curve(trained({"lora": ADAPTERS}, working_folder / "plain"))
    whole = curve(trained({"lora": ADAPTERS | lora}, working_folder / "whole"))
    assert whole != plain
    trained({"lora": ADAPTERS | lora}, working_folder / "parts", stop_when_asked=DURING_EVALUATION_AT_STEP_4)
    resumed = curve(trained({"lora": ADAPTERS | lora}, working_folder / "parts", resume=True))
    assert resumed[-1] == whole[-1]
    checkpoint = working_folder / "whole" / "step-00000008"
    merged = load_model(checkpoint, merge=True)
    torch.testing.assert_close(logits(merged), logits(load_model(checkpoint)), rtol=1e-4, atol=1e-4)
    merged.save_pretrained(working_folder / "saved")
    from transformers import AutoModelForCausalLM

    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(working_folder / "saved")), logits(merged))
    # A trained module does not stay in the base model of the next trial.
    assert curve(trained({"lora": ADAPTERS}, working_folder / "after")) == plain


def test_modules_that_the_model_does_not_have_cannot_be_trained_as_a_whole() -> None:
    with pytest.raises(
        ValueError, match=r"modules_to_save=\['head'\]: a Llama.* has no module head; it has .*'embed_tokens'"
    ):
        build_causal_lm(tiny(lora=Lora(modules_to_save=["head"])))
    with pytest.raises(ValueError, match="the weights of q_proj are quantized"):
        build_causal_lm(tiny(quantization="nf4", lora=Lora(modules_to_save=["q_proj"], target_modules="mlp")))


OPTIMIZERS: list[Any] = [
    "adamw_8bit",
    {"_target_": "torch.optim.RMSprop", "arguments": {"momentum": 0.5}},
    {"_target_": "torch.optim.Adafactor"},
]


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=["8bit", "elementwise", "factored"])
def test_a_training_with_another_optimizer_is_resumed_exactly(optimizer: Any, working_folder: Path) -> None:
    write_prompts(working_folder)
    train = {"optimizer": optimizer, "lr": 1e-3}
    whole = curve(trained({"lora": None}, working_folder / "whole", train))
    assert whole[-1] < whole[0]
    trained({"lora": None}, working_folder / "parts", train, stop_when_asked=DURING_EVALUATION_AT_STEP_4)
    assert curve(trained({"lora": None}, working_folder / "parts", train, resume=True))[-1] == whole[-1]
    if optimizer == "adamw_8bit":
        state = load_file(working_folder / "whole" / "step-00000008" / "training_state.safetensors")
        types = {each.dtype for name, each in state.items() if name.startswith("state1:")}
        assert types == {torch.uint8, torch.float32}  # norms stay in 32 bits


def on_fsdp() -> dict[str, Any]:
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    for name, model, optimizer in (
        ("lora", {"lora": ADAPTERS | {"use_dora": True}}, "adamw"),
        ("optimizer", {"lora": None}, OPTIMIZERS[1]),
    ):
        for kind in ("ddp", "fsdp"):
            train = {"optimizer": optimizer, "lr": 1e-3}
            config = configured(TEXT, model=model, train=train, strategy={"kind": kind})
            folder = Path(name, kind)
            run(config, folder, stop_when_asked=DURING_EVALUATION_AT_STEP_4)
            results[name, kind] = curve(run(config, folder, resume=True))
    try:
        run(
            configured(TEXT, model={"lora": None}, train={"optimizer": OPTIMIZERS[2]}, strategy={"kind": "fsdp"}),
            Path("x"),
        )
    except Exception as error:  # noqa: BLE001 - compared by the test
        results["refused"] = str(error)
    return results


@pytest.mark.slow
def test_sharded_models_train_the_same_with_further_adapters_and_optimizers(working_folder: Path) -> None:
    write_prompts(working_folder)
    results, _ = on_two_workers(on_fsdp, working_folder)
    for name in ("lora", "optimizer"):
        assert results[name, "fsdp"] == pytest.approx(results[name, "ddp"], rel=1e-4)
    assert "train.optimizer._target_=torch.optim.Adafactor: its step fails" in results["refused"]
    assert "strategy=ddp" in results["refused"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"quantization": "nf4", "lora": None}}, "quantization=nf4: .*give the model adapters"),
        ({"model": {"quantization": "int8", "lora": {"use_dora": True}}}, "quantization=int8: .*lora.use_dora=false"),
        ({"model": {"quantization": "nf4"}, "strategy": {"kind": "fsdp"}}, "model.quantization=nf4: .*strategy=ddp"),
        ({"model": {"lora": {"use_dora": True}}, "strategy": {"kind": "tensor_parallel"}}, "use_dora=true: .*fsdp"),
        ({"model": {"lora": {"modules_to_save": ["lm_head"]}}, "strategy": {"kind": "pipeline"}}, "modules_to_save=.*"),
        ({"model": {"lora": {"modules_to_save": ["lm_head"]}}, "strategy": {"kind": "fsdp"}}, "modules_to_save=.*ddp"),
        ({"train": {"optimizer": "adamw_8bit"}, "strategy": {"kind": "fsdp"}}, "train.optimizer=adamw_8bit: .*ddp"),
    ],
)
def test_combinations_that_cannot_work_are_refused_with_the_fix(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        configured(TEXT, **changes)
