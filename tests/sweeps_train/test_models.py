"""Models: language models with adapters on the right layers, and image models of any shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from training_runs import TEXT, configured, write_prompts
from transformers import ByT5Tokenizer

from sweeps_train.config import CausalLM, ConvNet, Lora, VisionTransformer
from sweeps_train.data.images import ImageShape
from sweeps_train.models.causal_lm import (
    build_causal_lm,
    build_tokenizer,
    max_positions,
    save_causal_lm,
)
from sweeps_train.models.image import build_image_model
from sweeps_train.models.lora import add_lora, leave_casts_to_autocast, target_modules
from sweeps_train.steps.trained_types import hold_in_float32, short_types
from sweeps_train.tasks import build_task

LLAMA_ATTENTION = ["k_proj", "o_proj", "q_proj", "v_proj"]
SMALL = {"vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
WIDE = SMALL | {"intermediate_size": 32}


def model_of(kind: str, **options: Any) -> torch.nn.Module:
    config = getattr(transformers, f"{kind}Config")(**options)
    return transformers.AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize(
    ("model", "attention", "mlp"),
    [
        (("Llama", WIDE), LLAMA_ATTENTION, ["down_proj", "gate_proj", "up_proj"]),
        (("Qwen2", WIDE | {"num_key_value_heads": 2}), LLAMA_ATTENTION, ["down_proj", "gate_proj", "up_proj"]),
        (("Phi3", WIDE | {"pad_token_id": 0}), ["o_proj", "qkv_proj"], ["down_proj", "gate_up_proj"]),
        (("Phi", WIDE), ["dense", "k_proj", "q_proj", "v_proj"], ["fc1", "fc2"]),
        (
            ("GPT2", {"vocab_size": 100, "n_embd": 16, "n_layer": 2, "n_head": 2}),
            ["attn.c_proj", "c_attn"],
            ["c_fc", "mlp.c_proj"],
        ),
        (("GPTNeoX", WIDE), ["dense", "query_key_value"], ["dense_4h_to_h", "dense_h_to_4h"]),
        (
            ("OPT", SMALL | {"ffn_dim": 32, "word_embed_proj_dim": 16}),
            ["k_proj", "out_proj", "q_proj", "v_proj"],
            ["fc1", "fc2"],
        ),
        (("Bloom", {"vocab_size": 100, "hidden_size": 16, "n_layer": 2, "n_head": 2}), ["dense", "query_key_value"],
         ["dense_4h_to_h", "dense_h_to_4h"]),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)  # fmt: skip
def test_attention_and_mlp_are_found_in_every_architecture(
    model: tuple[str, dict[str, Any]], attention: list[str], mlp: list[str]
) -> None:
    built = model_of(model[0], **model[1])
    assert target_modules(built, "attention") == attention
    assert target_modules(built, "mlp") == mlp


def test_fused_experts_have_adapters_and_no_warning_of_patterns_that_nobody_has_set() -> None:
    model: Any = model_of("Mixtral", **WIDE, num_key_value_heads=2, num_local_experts=2)
    adapted = add_lora(model, Lora(r=2, dropout=0.0, target_modules="all-linear"))
    ranks = {name: each.shape for name, each in adapted.named_parameters() if "experts" in name and "lora_" in name}
    assert ranks
    assert all(4 * 2 in shape or 2 * 2 in shape for shape in ranks.values()), ranks


def test_other_names_of_layers_are_left_to_peft() -> None:
    llama = model_of("Llama", **WIDE)
    assert target_modules(llama, "all-linear") == "all-linear"
    assert target_modules(llama, "q_proj") == ["q_proj"]
    assert target_modules(llama, ["q_proj", "up_proj"]) == ["q_proj", "up_proj"]


def test_a_part_that_the_model_does_not_have_is_an_error_that_names_what_it_has() -> None:
    with pytest.raises(ValueError, match=r"model.lora.target_modules=attention: .*use all-linear, or .*\['0', '1'\]"):
        target_modules(torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)), "attention")


def tiny(**options: Any) -> CausalLM:
    return CausalLM(**{"kind": "causal_lm", "path": "builtin:tiny_llama", **options})


def trainable(model: torch.nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


@pytest.mark.parametrize("wanted", ["attention", "mlp", "all-linear", "q_proj", ["q_proj", "v_proj"]])
def test_only_adapters_are_trained(wanted: str | list[str]) -> None:
    model = build_causal_lm(tiny(lora=Lora(target_modules=wanted)))
    assert trainable(model)
    assert all("lora_" in name for name in trainable(model))


def test_modules_that_the_model_does_not_have_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"model.lora.target_modules=\['no_proj'\]"):
        build_causal_lm(tiny(lora=Lora(target_modules=["no_proj"])))


def test_without_lora_every_weight_is_trained() -> None:
    model = build_causal_lm(tiny())
    assert trainable(model) == {name for name, _ in model.named_parameters()}


def test_weights_that_are_trained_are_not_kept_in_16_bits() -> None:
    whole = build_causal_lm(tiny(dtype="bfloat16"))
    types = short_types(whole)
    assert types == dict.fromkeys(trainable(whole), torch.bfloat16)
    hold_in_float32(whole, types)
    assert {p.dtype for p in whole.parameters()} == {torch.float32}
    adapted = build_causal_lm(tiny(dtype="float16", lora=Lora()))
    hold_in_float32(adapted, short_types(adapted))
    assert {(p.requires_grad, p.dtype) for p in adapted.parameters()} == {(True, torch.float32), (False, torch.float16)}


def test_gradient_checkpointing_gives_the_same_gradients() -> None:
    gradients = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        model = build_causal_lm(tiny(lora=Lora(), gradient_checkpointing=checkpointing)).train()
        model(torch.arange(3, 40).unsqueeze(0)).logits.square().mean().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert len(gradients[0]) > 0
    torch.testing.assert_close(gradients[1], gradients[0])


def test_a_model_in_a_folder_is_loaded_and_named_as_the_config_does(working_folder: Path) -> None:
    save_causal_lm(model_of("Llama", **WIDE | {"max_position_embeddings": 64}), ByT5Tokenizer(), Path("mine"))
    config = tiny(path="./mine", revision="step3000", lora=Lora())  # which transformers ignores for a folder
    model = build_causal_lm(config)
    assert max_positions(model) == 64
    assert build_tokenizer(config)("a").input_ids == [100, 1]
    save_causal_lm(model, ByT5Tokenizer(), Path("adapted"))
    written = json.loads(Path("adapted/adapter_config.json").read_text())
    assert (written["base_model_name_or_path"], written["revision"]) == ("./mine", "step3000")


@pytest.mark.parametrize("path", ["builtin:large_llama", "./no/folder", "owner/name"])
def test_a_model_that_is_not_there_is_an_error(path: str) -> None:
    with pytest.raises(ValueError, match=f"model.path={path}"):
        build_causal_lm(tiny(path=path))


@pytest.mark.parametrize("config", [
    ConvNet(kind="conv_net", blocks=3),
    VisionTransformer(kind="vision_transformer", patch_size=4),
])  # fmt: skip
def test_image_models_take_images_of_other_shapes(config: ConvNet | VisionTransformer) -> None:
    model = build_image_model(config, ImageShape(channels=3, height=12, width=20, classes=7))
    assert model(torch.zeros(2, 3, 12, 20)).shape == (2, 7)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ConvNet(kind="conv_net", blocks=4), "model.blocks=4 .*use at most 3"),
        (
            VisionTransformer(kind="vision_transformer", patch_size=3),
            "model.patch_size=3 does not divide images of 8x8",
        ),
    ],
)
def test_an_image_model_that_does_not_fit_is_an_error(config: ConvNet | VisionTransformer, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_image_model(config, ImageShape(channels=1, height=8, width=8, classes=10))


def test_a_tokenizer_whose_tokens_the_model_has_no_rows_for_is_refused(working_folder: Path) -> None:
    tokenizer = build_tokenizer(tiny())
    tokenizer.add_tokens([f"<{number}>" for number in range(200)])
    tokenizer.save_pretrained("larger")
    with write_prompts(working_folder).open("a", encoding="utf-8") as file:
        file.write('\n{"prompt": "The last one: ", "completion": "<199>"}')
    message = r"has the token '<199>' \(\d+\), and .* embeddings for 384 tokens; use the .*model\.tokenizer=null"
    with pytest.raises(ValueError, match=message):
        build_task(configured(TEXT, model={"tokenizer": "larger"}))
    build_task(configured(TEXT)).close()  # the base model that is shared has no adapters of the one that failed


def casts_and_gradients(*, leave: bool) -> tuple[int, float, list[torch.Tensor]]:
    """Number of casts in a forward and backward pass under autocast, its loss, and the adapters' gradients."""
    torch.manual_seed(0)
    model = build_causal_lm(tiny(dtype="bfloat16", lora=Lora(target_modules="attention"))).train()
    for name, each in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(each)
    if leave:
        leave_casts_to_autocast(model)
    with Casts() as casts:
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(torch.arange(3, 40).unsqueeze(0)).logits.float().square().mean()
        loss.backward()
    return casts.number, float(loss.detach()), [each.grad for each in model.parameters() if each.grad is not None]


class Casts(TorchDispatchMode):
    number = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += str(function) == "aten._to_copy.default"
        return function(*args, **(kwargs or {}))


def test_under_autocast_adapters_take_16_bits_as_they_are_and_train_alike() -> None:
    before, loss, gradients = casts_and_gradients(leave=False)
    after, same_loss, same_gradients = casts_and_gradients(leave=True)
    adapters = 3 * 4
    # To float32 and back in the forward pass, and likewise for the gradient of the input in the backward pass.
    assert before - after >= 3 * adapters
    assert same_loss == loss
    torch.testing.assert_close(same_gradients, gradients, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize(("precision", "casts"), [("bf16", False), ("fp32", True)])
def test_a_training_in_16_bits_leaves_the_casts_of_its_adapters_to_autocast(
    precision: str, casts: bool, working_folder: Path
) -> None:
    write_prompts(working_folder)
    task = build_task(configured(TEXT, train={"precision": precision}))
    found = [getattr(each, "cast_input_dtype_enabled", None) for each in task.model.modules()]
    task.close()
    assert {each for each in found if each is not None} == {casts}
