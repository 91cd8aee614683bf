"""Workloads: a model and its data, as a ``TrainingConfig`` that every arm follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOG_EVERY = 10
"""Steps between two records of the loss, in every arm."""


@dataclass(frozen=True)
class Workload:
    """One row of the tables."""

    what: str
    """Description for a reader."""
    config: Mapping[str, Any]
    """Config of our loop."""
    per_worker: int
    """Samples of a worker in a step."""
    block: int
    """Steps between two gates, which take a second or two."""
    sequence_length: int = 1
    """Tokens in a sample of a language model."""
    shape: Mapping[str, Any] | None = None
    """Arguments of the transformers config, and ``model_type``, of a language model with random weights, which is made
    before anything is measured."""

    @property
    def units(self) -> int:
        """Tokens or samples of a worker in a step."""
        return self.per_worker * self.sequence_length

    def training_config(self, folder: Path, workers: int) -> dict[str, Any]:
        """Complete config of our loop, with the folder of the model, if it was made."""
        made = {"path": str(folder / "model"), "tokenizer": "builtin:tiny_llama"}
        model = self.config["model"] | (made if self.shape is not None else {})
        train = {
            "max_steps": 1_000_000,  # the measuring process ends it
            "eval_every": 1_000_000,
            "log_every": LOG_EVERY,
            "global_batch_size": self.per_worker * workers,
            **self.config["train"],
        }
        return {"strategy": {"kind": "ddp"}, "checkpoint": {}, **self.config, "model": model, "train": train}

    def make(self, folder: Path) -> None:
        """Write the model with random weights, if it has any; it goes with the tokenizer of ``tiny_llama``."""
        if self.shape is None:
            return
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        arguments = dict(self.shape)
        config = AutoConfig.for_model(arguments.pop("model_type"), **arguments)
        torch.manual_seed(0)
        model: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
        model.save_pretrained(folder / "model")


def text(sequence_length: int, model: dict[str, Any], **train: Any) -> dict[str, Any]:
    """Config of a language model on the standard library's docstrings, packed."""
    return {
        "task": {"kind": "causal_lm"},
        "model": {"kind": "causal_lm", "path": "builtin:tiny_llama", **model},
        "data": {"kind": "text", "path": "builtin:stdlib_docstrings", "sequence_length": sequence_length},
        "train": {"lr": 1e-3, **train},
    }


def images(model: dict[str, Any]) -> dict[str, Any]:
    """Config of a classifier of digits."""
    return {
        "task": {"kind": "image_classification"},
        "model": model,
        "data": {"kind": "digits"},
        "train": {"lr": 1e-3},
    }


def layers(number: int, *, width: int, inner: int, heads: int, kv_heads: int) -> dict[str, int]:
    """Arguments of a transformers config that give the size of its layers."""
    return {
        "num_hidden_layers": number,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
    }


BYTES_AND_SPECIAL: dict[str, Any] = {"vocab_size": 384, "bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
"""Vocabulary of the tokenizer."""
CPU = {
    "llama 0.7M": Workload("`conf=llm_lora`'s base, all weights, 128 bytes", text(128, {}), 8, 30, 128),
    "llama 14M": Workload(
        "8 layers of width 384, 256 bytes",
        text(256, {}),
        2,
        3,
        256,
        {
            "model_type": "llama",
            **layers(8, width=384, inner=1024, heads=6, kv_heads=6),
            "max_position_embeddings": 1024,
            "tie_word_embeddings": True,
            **BYTES_AND_SPECIAL,
        },
    ),
    "conv net": Workload("`conf=digits`'s", images({"kind": "conv_net"}), 32, 300),
    "vision transformer": Workload(
        "4 layers of width 64, on digits", images({"kind": "vision_transformer", "width": 64, "depth": 4}), 32, 60
    ),
}
