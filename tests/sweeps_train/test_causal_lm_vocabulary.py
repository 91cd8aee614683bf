"""A tokenizer with tokens for which the model has no embeddings, as those of Gemma 3 (1B) and Code Llama (34B) have."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from test_text_data import byte_tokenizer_in_rust
from training_runs import TEXT, Recorder, configured, run
from transformers import LlamaConfig, LlamaForCausalLM

IMAGE = "<image>"


def trained(folder: Path, *texts: str) -> Recorder:
    """Train a model whose own tokenizer knows two tokens more than the model: ``<image>``, and one to pad with."""
    tokenizer = byte_tokenizer_in_rust()
    rows = len(tokenizer)
    tokenizer.add_tokens([IMAGE], special_tokens=True)
    tokenizer.add_special_tokens({"pad_token": "<padding>"})
    tokenizer.save_pretrained(folder / "base")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=rows, max_position_embeddings=64, **sizes)).save_pretrained(folder / "base")
    file = folder / "texts.jsonl"
    file.write_text("\n".join(json.dumps({"text": text}) for text in texts), encoding="utf-8")
    data = {"path": str(file), "prompt_field": None, "completion_field": None, "text_field": "text"}
    train = {"max_steps": 1, "global_batch_size": 2}
    model = {"path": str(folder / "base"), "lora": None}
    return run(configured(TEXT, model=model, data={**data, "eval_path": str(file)}, train=train))


def test_tokens_without_an_embedding_do_not_matter_where_no_text_has_them(tmp_path: Path) -> None:
    assert math.isfinite(trained(tmp_path, "a short text", "a text that is longer").final["eval/loss"])


def test_a_text_with_a_token_that_has_no_embedding_is_refused(tmp_path: Path) -> None:
    message = (
        r"data\.path=.*: some text has the token '<image>' \(258\), and .* remove it from the text, or save the model"
    )
    with pytest.raises(ValueError, match=message):
        trained(tmp_path, "a short text", f"a text with {IMAGE}")
