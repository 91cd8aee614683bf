"""Contract with the private names of transformers that ``sweeps_train`` uses: a failure says which has moved."""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sweeps_train.compat.transformers import (
    attention_function,
    attention_name,
    attention_named,
    mask_function,
    register_attention,
    takes_attention,
)

SIZES: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "vocab_size": 8, "num_hidden_layers": 1}


def small_model() -> LlamaForCausalLM:
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_attention_heads=2, num_key_value_heads=2)).eval()


def test_a_config_names_its_attention_and_can_name_another_for_a_while() -> None:
    config = small_model().config
    assert attention_name(config) == "sdpa", "config._attn_implementation"
    with attention_named(config, "other"):
        assert attention_name(config) == "other", "config._attn_implementation_internal"
    assert attention_name(config) == "sdpa"


def test_attention_that_is_registered_is_called_with_the_masks_of_another() -> None:
    model, tokens = small_model(), torch.arange(8).unsqueeze(0)
    expected = model(input_ids=tokens).logits
    calls = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return attention_function("sdpa")(*args, **kwargs)

    register_attention("counted", counted, mask_function("sdpa"))
    model.set_attn_implementation("counted")
    assert torch.equal(model(input_ids=tokens).logits, expected), "ALL_MASK_ATTENTION_FUNCTIONS"
    assert calls == [1], "AttentionInterface and ALL_ATTENTION_FUNCTIONS"


def test_models_whose_attention_is_in_the_registry_are_known() -> None:
    assert takes_attention(small_model()), "PreTrainedModel._can_set_attn_implementation"
