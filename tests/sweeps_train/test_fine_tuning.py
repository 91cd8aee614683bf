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

from sweeps_train import load_model
from sweeps_train.config import CausalLM, Lora, Train
from sweeps_train.models.causal_lm import SharedBase, build_causal_lm
from sweeps_train.steps.optimizer import build_optimizer
from sweeps_train.workers import worker_cache

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


def curve(model: dict[str, Any], folder: Path, train: dict[str, Any] | None = None, **options: Any) -> list[float]:
    return trained(model, folder, train, **options).eval_losses


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

    whole = curve({"quantization": quantization}, working_folder / "whole")
    assert whole[-1] < whole[0]
    trained({"quantization": quantization}, working_folder / "parts", stop_when_asked=DURING_EVALUATION_AT_STEP_4)
    resumed = curve({"quantization": quantization}, working_folder / "parts", resume=True)
    assert resumed[-1] == whole[-1]

    checkpoint = working_folder / "whole" / "step-00000008"
    assert (checkpoint / "adapter_model.safetensors").stat().st_size < 100_000  # and no base
    merged, adapted = load_model(checkpoint, merge=True), load_model(checkpoint)
    assert {each.dtype for each in merged.parameters()} == {torch.float32}
    assert not hasattr(merged.config, "quantization_config")
    torch.testing.assert_close(merged.model.norm.weight, plain.get_base_model().model.norm.weight)
    assert 0 < (logits(adapted) - logits(merged)).abs().max() < 4  # merged into the base as it was before


def test_4_bits_are_nf4_with_quantized_scales_and_multiplied_in_the_models_type() -> None:
    model: Any = build_causal_lm(tiny(quantization="nf4", dtype="bfloat16"))
    layer = model.get_base_model().model.layers[0].self_attn.q_proj.base_layer
    assert (layer.weight.quant_state.quant_type, layer.weight.quant_state.nested) == ("nf4", True)
    assert (layer.compute_dtype, layer.support_avx512bf16_for_cpu) == (torch.bfloat16, False)


def test_8_bits_are_those_of_bitsandbytes() -> None:
    model: Any = build_causal_lm(tiny(quantization="int8"))
    assert model.get_base_model().model.layers[0].mlp.up_proj.weight.dtype == torch.int8


@pytest.mark.slow
def test_a_warm_worker_keeps_a_quantized_base_for_trials_of_the_same_and_frees_it_for_others(
    working_folder: Path,
) -> None:
    write_prompts(working_folder)
    step = {"max_steps": 1, "eval_every": 1}
    first = curve({"quantization": "nf4"}, working_folder / "1", step)
    base: Any = worker_cache._cache["base model"][1]
    bare = weakref.ref(base._model)
    del base
    trained({"quantization": "nf4", "lora": {"r": 2, "use_dora": True}}, working_folder / "2", step)
    assert bare() is not None
    again = curve({"quantization": "nf4"}, working_folder / "3", step)
    assert again == first

    trained({}, working_folder / "4", step)
    gc.collect()
    assert bare() is None


KINDS_OF_LORA: dict[str, dict[str, Any]] = {
    "plain": {},
    "rslora": {"use_rslora": True},
    "dora": {"use_dora": True},
    "whole": {"modules_to_save": ["embed_tokens"]},
}


@pytest.mark.slow
@pytest.mark.parametrize("lora", [{"use_rslora": True}, {"use_dora": True}, {"modules_to_save": ["embed_tokens"]}])
def test_further_kinds_of_lora_are_trained_saved_resumed_and_merged(lora: dict[str, Any], working_folder: Path) -> None:
    write_prompts(working_folder)
    plain = curve({"lora": ADAPTERS}, working_folder / "plain")
    whole = curve({"lora": ADAPTERS | lora}, working_folder / "whole")
    assert whole != plain
    trained({"lora": ADAPTERS | lora}, working_folder / "parts", stop_when_asked=DURING_EVALUATION_AT_STEP_4)
    resumed = curve({"lora": ADAPTERS | lora}, working_folder / "parts", resume=True)
    assert resumed[-1] == whole[-1]
    checkpoint = working_folder / "whole" / "step-00000008"
    merged = load_model(checkpoint, merge=True)
    torch.testing.assert_close(logits(merged), logits(load_model(checkpoint)), rtol=1e-4, atol=1e-4)
    merged.save_pretrained(working_folder / "saved")
    from transformers import AutoModelForCausalLM

    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(working_folder / "saved")), logits(merged))
    # A trained module does not stay in the base model of the next trial.
    assert curve({"lora": ADAPTERS}, working_folder / "after") == plain


def test_each_kind_of_lora_changes_the_layers_that_it_should() -> None:
    adapted = {
        name: build_causal_lm(tiny(lora=Lora(r=4, alpha=8, target_modules=["q_proj"], **options)))
        for name, options in KINDS_OF_LORA.items()
    }
    layers: dict[str, Any] = {
        name: model.get_base_model().model.layers[0].self_attn.q_proj  # type: ignore[operator,union-attr]
        for name, model in adapted.items()
    }
    assert {name: layer.scaling["default"] for name, layer in layers.items()} == {
        "plain": 2.0,
        "rslora": 4.0,  # alpha / sqrt(r)
        "dora": 2.0,
        "whole": 2.0,
    }
    assert [name for name, layer in layers.items() if layer.lora_magnitude_vector] == ["dora"]
    whole = {
        name: {each for each, weight in model.named_parameters() if weight.requires_grad and "lora" not in each}
        for name, model in adapted.items()
    }
    assert whole.pop("whole") == {"base_model.model.model.embed_tokens.modules_to_save.default.weight"}
    assert not any(whole.values())


def test_embeddings_that_are_trained_as_a_whole_stay_the_head_and_leave_the_base_as_it_was() -> None:
    from sweeps_train.models.lora import remove_lora

    model: Any = build_causal_lm(tiny(lora=Lora(modules_to_save=["embed_tokens"])))
    trained = model.get_input_embeddings().modules_to_save["default"].weight
    assert model.get_output_embeddings().weight is trained
    before = model.get_input_embeddings().original_module.weight.detach().clone()
    with torch.no_grad():
        trained += 1
    base: Any = remove_lora(model)
    assert not hasattr(base, "peft_config"), "peft would warn of several adapters"
    assert torch.equal(base.get_input_embeddings().weight, before)
    assert torch.equal(base.get_output_embeddings().weight, before)


@pytest.mark.filterwarnings("ignore:Model (with|has) `tie_word_embeddings=True`")  # peft's
@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
def test_adapters_of_the_head_or_the_embeddings_are_merged_into_one_of_them(target: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    from sweeps_train.models.lora import merge_lora

    adapted: Any = build_causal_lm(tiny(lora=Lora(target_modules=["q_proj", target])))
    torch.manual_seed(0)
    with torch.no_grad():
        for each in adapted.parameters():
            each.add_(0.1 * torch.randn_like(each), alpha=float(each.requires_grad))
    expected = logits(adapted)
    merged = merge_lora(adapted)
    torch.testing.assert_close(logits(merged), expected, rtol=1e-4, atol=1e-4)
    merged.save_pretrained(tmp_path)
    torch.testing.assert_close(logits(AutoModelForCausalLM.from_pretrained(tmp_path)), expected, rtol=1e-4, atol=1e-4)


def test_modules_that_the_model_does_not_have_cannot_be_trained_as_a_whole() -> None:
    with pytest.raises(
        ValueError, match=r"modules_to_save=\['head'\]: a Llama.* has no module head; it has .*'embed_tokens'"
    ):
        build_causal_lm(tiny(lora=Lora(modules_to_save=["head"])))
    with pytest.raises(ValueError, match="the weights of q_proj are quantized"):
        build_causal_lm(tiny(quantization="nf4", lora=Lora(modules_to_save=["q_proj"], target_modules="mlp")))


@pytest.mark.parametrize(
    ("name", "kind", "bits", "is_paged"),
    [
        ("adamw_8bit", "AdamW8bit", 8, False),
        ("paged_adamw_8bit", "PagedAdamW8bit", 8, True),
        ("paged_adamw_32bit", "PagedAdamW32bit", 32, True),
    ],
)
def test_optimizers_of_bitsandbytes_are_made_as_configured(name: Any, kind: str, bits: int, is_paged: bool) -> None:
    layer = torch.nn.Linear(4, 4)
    train = Train(max_steps=1, optimizer=name, lr=0.5, momentum=0.7, weight_decay=0.3)
    made: Any = build_optimizer(layer.parameters(), train)
    assert (type(made).__name__, made.args.optim_bits, made.is_paged) == (kind, bits, is_paged)
    found = [(group["lr"], group["betas"], group["weight_decay"]) for group in made.param_groups]
    assert found == [(0.5, (0.7, 0.999), 0.3), (0.5, (0.7, 0.999), 0.0)]


def test_a_users_own_optimizer_gets_its_arguments_the_rate_and_the_decay_of_each_group() -> None:
    own: Any = {"_target_": "torch.optim.RMSprop", "arguments": {"momentum": 0.5}}
    config = configured(TEXT, train={"optimizer": own, "lr": 0.25, "weight_decay": 0.3}).train
    made = build_optimizer(torch.nn.Linear(4, 4).parameters(), config)
    found = [(group["lr"], group["momentum"], group["weight_decay"]) for group in made.param_groups]
    assert (type(made), found) == (torch.optim.RMSprop, [(0.25, 0.5, 0.3), (0.25, 0.5, 0.0)])


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
    whole = curve({"lora": None}, working_folder / "whole", train)
    assert whole[-1] < whole[0]
    trained({"lora": None}, working_folder / "parts", train, stop_when_asked=DURING_EVALUATION_AT_STEP_4)
    assert curve({"lora": None}, working_folder / "parts", train, resume=True)[-1] == whole[-1]
    if optimizer == "adamw_8bit":
        state = load_file(working_folder / "whole" / "step-00000008" / "training_state.safetensors")
        types = {each.dtype for name, each in state.items() if name.startswith("state1:")}
        assert types == {torch.uint8, torch.float32}  # norms stay in 32 bits


def on_fsdp() -> dict[str, Any]:
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
            results[name, kind] = run(config, folder, resume=True).eval_losses
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
        ({"model": {"quantization": "nf4", "lora": None}}, "quantization=nf4: .*add adapters"),
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


def test_adapters_are_not_trained_on_a_base_whose_files_lack_weights(tmp_path: Path) -> None:
    model: Any = build_causal_lm(tiny(lora=None))
    model.config.tie_word_embeddings = False
    model.model.save_pretrained(tmp_path)  # without the head
    with pytest.raises(ValueError, match=r"its files have no lm_head.weight; .* use a model with all weights"):
        build_causal_lm(tiny(path=str(tmp_path)))
    with pytest.raises(ValueError, match=r"its files have no lm_head.weight"):
        SharedBase(tiny(path=str(tmp_path)), torch.device("cpu")).adapt(Lora())
    build_causal_lm(tiny(path=str(tmp_path), lora=Lora(modules_to_save=["lm_head"])))  # then it is trained and saved
