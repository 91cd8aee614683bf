"""Attention without masks and the head without all logits: the same losses and gradients as transformers' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from training_runs import TEXT, configured, write_prompts

from sweeps_train.models import attention
from sweeps_train.models.attention import document_mask, sees_whole_sequences, use_causal_attention
from sweeps_train.models.head import detach_head
from sweeps_train.steps.precision import Precision
from sweeps_train.strategies.build_strategy import build_strategy
from sweeps_train.tasks import build_task
from sweeps_train.workers.distributed import Workers

LENGTH = 12
LENGTHS = (12, 7, 3)
WIDE = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = WIDE | {"num_key_value_heads": 2}
MODELS: dict[str, dict[str, Any]] = {
    "Llama": GROUPED,
    "Qwen2": GROUPED,
    "Qwen3": GROUPED | {"head_dim": 4},
    "GPT2": {"vocab_size": 64, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32},
    "OPT": {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 32,
            "word_embed_proj_dim": 16, "max_position_embeddings": 32},
    "Mistral": GROUPED | {"sliding_window": 5},
}  # fmt: skip


def model_of(kind: str) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**MODELS[kind], pad_token_id=0)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def padded() -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens, and the mask of those that are not padding."""
    generator = torch.Generator().manual_seed(1)
    is_text = torch.arange(LENGTH) < torch.tensor(LENGTHS).unsqueeze(1)
    return torch.randint(1, 64, (len(LENGTHS), LENGTH), generator=generator) * is_text, is_text


class Operations(TorchDispatchMode):
    """Names of all operations that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", MODELS)
def test_text_has_the_same_logits_without_a_mask_for_the_padding_behind_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, is_text = padded()
    model = model_of(kind)
    expected = model(input_ids=tokens, attention_mask=is_text.long(), use_cache=False).logits
    asked: list[dict[str, Any]] = []
    torchs = functional.scaled_dot_product_attention

    def watched(*args: Any, **options: Any) -> torch.Tensor:
        asked.append(options)
        return torchs(*args, **options)

    assert use_causal_attention(model)
    monkeypatch.setattr(functional, "scaled_dot_product_attention", watched)
    with Operations() as operations:
        logits = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False).logits
    torch.testing.assert_close(logits[is_text], expected[is_text])
    assert len(asked) == 2
    if kind == "Mistral":  # its window is shorter than the sequence
        assert all(each["attn_mask"] is not None for each in asked)
    else:
        assert all(each["attn_mask"] is None and each["is_causal"] for each in asked)
        assert all(each.get("enable_gqa", False) is ("num_key_value_heads" in MODELS[kind]) for each in asked)
    assert "aten._local_scalar_dense.default" not in operations.names  # on a GPU it would wait


def test_a_model_with_its_own_attention_keeps_it() -> None:
    config = transformers.BloomConfig(vocab_size=64, hidden_size=16, n_layer=1, n_head=2)
    model = transformers.AutoModelForCausalLM.from_config(config)
    assert not use_causal_attention(model)
    assert model.config._attn_implementation == "eager"


DOCUMENTS = ((5, 8), (), (1, 2, 11))
"""Ends of the documents in each sequence, but for the last one."""


def positions_and_ends() -> tuple[torch.Tensor, torch.Tensor]:
    positions = torch.stack(
        [torch.cat([torch.arange(end - start) for start, end in zip((0, *each), (*each, LENGTH), strict=True)])
         for each in DOCUMENTS]
    )  # fmt: skip
    ends = torch.tensor([[*each, *[LENGTH] * (4 - len(each))] for each in DOCUMENTS])
    return positions, ends


def each_document(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, borders: torch.Tensor, *_: Any, **options: Any
) -> torch.Tensor:
    """Variable-length attention as torch defines it, one document after another."""
    assert options["window_size"] == (-1, 0)
    attended = []
    for start, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        one = [each[start:end].transpose(0, 1).unsqueeze(0) for each in (query, key, value)]
        attended.append(
            functional.scaled_dot_product_attention(
                *one, is_causal=True, scale=options["scale"], enable_gqa=options["enable_gqa"]
            ).squeeze(0).transpose(0, 1)
        )  # fmt: skip
    return torch.cat(attended)


@pytest.mark.parametrize("has_kernel", [True, False])
@pytest.mark.parametrize("kind", ["Llama", "Qwen3", "GPT2"])
def test_documents_kept_apart_by_their_borders_have_the_logits_of_a_dense_mask(
    kind: str, has_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, _ = padded()
    positions, ends = positions_and_ends()
    model = model_of(kind)
    expected = model(input_ids=tokens, position_ids=positions, use_cache=False).logits
    assert use_causal_attention(model)
    assert sees_whole_sequences(model)
    dense = model(input_ids=tokens, position_ids=positions, use_cache=False).logits
    monkeypatch.setattr(attention, "_has_kernel", lambda *_: has_kernel)
    monkeypatch.setattr(attention, "varlen_attn", each_document)
    with Operations() as operations:
        borders = document_mask(ends, LENGTH)
        logits = model(input_ids=tokens, position_ids=positions, attention_mask=borders, use_cache=False).logits
    torch.testing.assert_close(dense, expected)
    torch.testing.assert_close(logits, expected)
    assert has_kernel or "aten._local_scalar_dense.default" not in operations.names


def test_documents_are_kept_apart_in_16_bits_where_autocast_trains_weights_in_32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens, _ = padded()
    positions, ends = positions_and_ends()
    model = model_of("Llama")
    types: list[torch.dtype] = []

    def has_kernel(query: torch.Tensor, value: torch.Tensor, dropout: float) -> bool:
        types.extend([query.dtype, value.dtype])
        return False

    use_causal_attention(model)
    monkeypatch.setattr(attention, "_has_kernel", has_kernel)
    with torch.autocast("cpu", torch.bfloat16):
        borders = document_mask(ends, LENGTH)
        model(input_ids=tokens, position_ids=positions, attention_mask=borders, use_cache=False)
    assert set(types) == {torch.bfloat16}


def test_a_training_refuses_a_model_whose_isolated_documents_would_see_each_other(working_folder: Path) -> None:
    torch.manual_seed(0)
    vocabulary = 4096
    recurrent = transformers.FalconMambaConfig(vocab_size=vocabulary, hidden_size=16, num_hidden_layers=1, state_size=4)
    of_opt = transformers.OPTConfig(**MODELS["OPT"] | {"vocab_size": vocabulary})
    for name, config in (("recurrent", recurrent), ("opt", of_opt)):
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(working_folder / name)
    write_prompts(working_folder)
    columns = {"prompt_field": None, "completion_field": None, "text_field": "completion"}
    packed = {**columns, "packing": True, "isolate_documents": True, "sequence_length": 8}

    def build(name: str) -> None:
        model = {"path": str(working_folder / name), "tokenizer": "builtin:tiny_llama", "lora": None}
        build_task(configured(TEXT, model=model, data=packed), None).close()

    build("opt")  # it takes borders, but reads none in its positions
    with pytest.raises(ValueError, match=r"data.isolate_documents=true: a token of model.path=.*recurrent also sees"):
        build("recurrent")


def test_a_window_is_not_left_out_for_documents() -> None:
    assert not sees_whole_sequences(model_of("Mistral"))


@pytest.mark.parametrize("kind", ["Llama", "Qwen3", "GPT2", "Mistral"])
def test_without_its_head_a_model_returns_what_the_head_takes(kind: str) -> None:
    tokens, _ = padded()
    model = model_of(kind)
    logits = model(input_ids=tokens).logits
    head = detach_head(model)
    assert head is not None
    torch.testing.assert_close(functional.linear(model(input_ids=tokens).logits, head.weight, head.bias), logits)
    head.attach()
    torch.testing.assert_close(model(input_ids=tokens).logits, logits)


def test_a_model_that_scales_or_limits_its_logits_keeps_its_head() -> None:
    tokens, _ = padded()
    for config in (
        transformers.CohereConfig(**GROUPED, logit_scale=0.5, pad_token_id=0),
        transformers.Gemma2Config(**GROUPED, head_dim=4, final_logit_softcapping=30.0, pad_token_id=0),
        transformers.GraniteConfig(**GROUPED, logits_scaling=2.0, pad_token_id=0),
    ):
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        logits = model(input_ids=tokens).logits
        assert detach_head(model) is None
        assert torch.equal(model(input_ids=tokens).logits, logits)


@pytest.mark.parametrize("packed", [False, True])
def test_the_passes_of_a_micro_batch_read_no_value_that_a_gpu_would_have_to_be_waited_for(
    packed: bool, working_folder: Path
) -> None:
    write_prompts(working_folder)
    columns = {"prompt_field": None, "completion_field": None, "text_field": "completion", "packing": True}
    config = configured(TEXT, data=columns if packed else {})
    task = build_task(config)
    strategy = build_strategy(config.strategy, Workers.current(), Precision("bf16", torch.device("cpu")))
    strategy.parallelize(task)
    with Operations() as operations:
        strategy.backward([task.train_samples.batch([0, 1])], 1.0)
    task.close()
    assert not {name for name in operations.names if "_local_scalar_dense" in name or "nonzero" in name}
