"""Language models with random weights, made on the device and saved nowhere, and text to train them on."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

SEQUENCES = 96
"""Sequences of the text, in turns of which a training reads."""


@dataclass(frozen=True)
class Base:
    """A base model, by the arguments of its transformers config."""

    name: str
    arguments: Mapping[str, Any]

    def write_config(self, folder: Path) -> None:
        """Write the config alone, as our library finds a model in a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        common = {"dtype": "bfloat16", "tie_word_embeddings": True, "max_position_embeddings": 32768}
        (folder / "config.json").write_text(json.dumps({**common, **self.arguments}), encoding="utf-8")


def _qwen2(layers: int, width: int, inner: int, heads: int, kv_heads: int, vocabulary: int = 151936) -> dict[str, Any]:
    return {
        "model_type": "qwen2",
        "num_hidden_layers": layers,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
        "bos_token_id": None,
        "eos_token_id": 1,
        "pad_token_id": 0,
    }


SMALL = Base("Qwen2.5 0.5B", _qwen2(24, 896, 4864, 14, 2))
LARGE = Base("Qwen2.5 1.5B", _qwen2(28, 1536, 8960, 12, 2))
TINY = Base("tiny", _qwen2(2, 32, 64, 2, 1, vocabulary=384))
"""For CPUs; with grouped queries, as the others."""

LORA = {"r": 16, "alpha": 32, "target_modules": "all-linear"}


def training_config(
    base: Base, folder: Path, rows: int, length: int, *, lora: Mapping[str, Any] | None = LORA, **changes: Any
) -> dict[str, Any]:
    """Config of a training in bf16 without evaluations and checkpoints, on ``rows`` sequences of ``length`` tokens in a
    step. Writes the base's config, and its text, into the folder. ``changes`` are sections with keys that differ, such
    as ``train={"compile": True}``; without ``lora``, all weights are trained."""
    model = folder / base.name.replace(" ", "-")
    base.write_config(model)
    text = folder / f"text-{length}.jsonl"
    if not text.exists():
        text.write_text(
            "\n".join(json.dumps({"text": each}) for each in _documents(SEQUENCES * length)), encoding="utf-8"
        )
    sections: dict[str, dict[str, Any]] = {
        "task": {"kind": "causal_lm"},
        "model": {"kind": "causal_lm", "path": str(model), "tokenizer": "builtin:tiny_llama", "lora": lora},
        "data": {"kind": "text", "path": str(text), "sequence_length": length, "eval_fraction": 0.05},
        "train": {
            "max_steps": 1_000_000,  # the clock of the steps ends it
            "eval_every": 1_000_000,
            "global_batch_size": rows,
            "lr": 1e-3,
            "precision": "bf16",
        },
        "strategy": {"kind": "ddp"},
        "checkpoint": {},
    }
    return {name: {**each, **changes.get(name, {})} for name, each in sections.items()}


def _documents(characters: int) -> list[str]:
    """Documents of words, of which the tokenizer makes about a token of each character."""
    rng, documents, left = random.Random(0), [], characters
    while left > 0:
        words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(1, 9))) for _ in range(40)]
        documents.append(" ".join(words))
        left -= len(documents[-1])
    return documents


@contextmanager
def random_weights(device: torch.device) -> Iterator[None]:
    """Make models from their configs on the device, wherever pretrained ones would be read."""
    from transformers import AutoConfig, AutoModelForCausalLM

    factory: Any = AutoModelForCausalLM

    def make(
        location: str,
        *,
        dtype: Any,
        attn_implementation: str | None = None,
        output_loading_info: bool = False,
        **_: Any,
    ) -> Any:
        config = AutoConfig.from_pretrained(location, local_files_only=True)
        kind = config.dtype if dtype == "auto" else dtype
        with torch.random.fork_rng(), torch.device(device):
            torch.manual_seed(0)
            model = factory.from_config(config, dtype=kind, attn_implementation=attn_implementation).eval()
        return (model, {"missing_keys": set()}) if output_loading_info else model

    with mock.patch.object(factory, "from_pretrained", make):
        yield
