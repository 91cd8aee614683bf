"""Causal language modelling: next-token prediction."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional

from sweeps_train.config import CausalLM, Lora, TextData, TrainingConfig
from sweeps_train.data.packing import IGNORED
from sweeps_train.data.sample_order import Batch
from sweeps_train.data.text import build_text_samples
from sweeps_train.memory.machine_memory import machine_memory
from sweeps_train.models.attention import (
    document_mask,
    keeps_documents_apart,
    sees_whole_sequences,
    use_causal_attention,
)
from sweeps_train.models.causal_lm import (
    SharedBase,
    build_causal_lm,
    build_tokenizer,
    max_positions,
    save_causal_lm,
)
from sweeps_train.models.head import detach_head
from sweeps_train.models.lora import leave_casts_to_autocast, load_lora
from sweeps_train.steps.precision import Precision
from sweeps_train.steps.trained_types import hold_in_float32, short_types
from sweeps_train.tasks.cross_entropy import chunked_cross_entropy, full_cross_entropy, linear_cross_entropy
from sweeps_train.workers.distributed import Workers
from sweeps_train.workers.worker_cache import cached, evict

KEPT_PART = 0.5
"""Maximum part of a machine's memory that the cached base models of all its workers take between trials."""
_LARGEST_EXPONENT = math.log(torch.finfo(torch.float64).max)


class CausalLMTraining:
    """Next-token prediction with a causal language model. The loss counts tokens that are neither padding nor part of a
    prompt.

    Batches have ``input_ids`` and ``targets`` of shape (samples, tokens), and where documents are isolated
    ``position_ids`` of the same shape and ``document_ends`` of shape (samples, documents). ``logits`` returns logits of
    shape (samples, tokens, vocabulary), or hidden states of shape (samples, tokens, width) for a loss with the head.
    """

    unit: Literal["tokens"] = "tokens"
    num_scores = 1
    scores_each_sample = False

    def __init__(self, config: TrainingConfig, weights: Path | None, shared: SharedBase | None = None):
        """Load model and data, with weights from the folder of a checkpoint if one is given. A ``shared`` base model is
        used by other trainings at the same time; otherwise a separate one is loaded."""
        assert isinstance(config.model, CausalLM) and isinstance(config.data, TextData)
        model, data = config.model, config.data
        self._base: SharedBase | None = None
        if model.lora is None:
            self.model, self.stored_types = _whole_model(model, weights)
        else:
            if shared is not None:
                self.model = shared.copied(model.lora)
            else:
                self.model = self._adapted_base(model, model.lora, shards=config.strategy.kind != "ddp")
            hold_in_float32(self.model, short_types(self.model))
            self.stored_types = {}  # adapters are small, and stored as they are trained
            if weights is not None:
                load_lora(self.model, weights)  # not before: in 16 bits, modules trained as a whole lose digits
        named = self.model.named_parameters(remove_duplicate=False)
        self.frozen = [name for name, each in named if not each.requires_grad]
        tokenizer_key = (model.tokenizer or model.path, model.revision, model.trust_remote_code)
        tokenizer = cached("tokenizer", tokenizer_key, lambda: build_tokenizer(model))
        positions, rows = max_positions(self.model), _num_embeddings(self.model)
        self.train_samples, self.eval_samples = cached(
            "text", (data, tokenizer_key, positions, rows), lambda: build_text_samples(data, tokenizer, positions, rows)
        )
        largest = max(self.train_samples.largest_token, self.eval_samples.largest_token)
        if largest >= rows:
            raise ValueError(
                _without_embedding(model, data, str(tokenizer.convert_ids_to_tokens(largest)), largest, rows)
            )
        self._is_causal = use_causal_attention(self.model)
        self._separates_documents = self._is_causal and sees_whole_sequences(self.model)
        if data.isolate_documents:
            _check_isolation(model, self.model, self.logits)
        self._tokenizer = tokenizer
        self._sequence_length = data.sequence_length
        if Precision(config.train.precision, Workers.current().device).type is not None:
            leave_casts_to_autocast(self.model)
        if model.lora is not None and (shared is not None or config.strategy.kind == "ddp"):
            from sweeps_train.models.fused_lora import fuse_lora  # imports peft

            fuse_lora(self.model)
        self.repeats_its_passes = repeats_its_passes(model, self.model)
        self._head = detach_head(self.model)
        self.head_of_loss = self._head
        """Head that the loss applies; a strategy that runs another model's passes sets it to that model's head."""
        self._cross_entropy = torch.compile(full_cross_entropy) if config.train.compile else chunked_cross_entropy

    def _adapted_base(self, model: CausalLM, lora: Lora, *, shards: bool) -> nn.Module:
        """Return the previous trial's base model with new adapters, or load a base model. If the strategy shards it, it
        stays on the CPU as well."""
        base = shared_base(model, shards=shards)
        if not shards:
            self._base = base
            return base.adapt(lora)
        copied = base.copied(lora)
        on_this_machine = int(os.environ.get("LOCAL_WORLD_SIZE", Workers.current().size))
        if base.size * on_this_machine > KEPT_PART * machine_memory():
            evict("base model")
        return copied

    def pad(self, batch: Batch, multiple: int | None = None) -> Batch:
        length = batch["input_ids"].shape[1]
        padded = self._sequence_length if multiple is None else length + -length % multiple
        if multiple is not None and padded == length:
            return batch
        batch = dict(batch)
        ends = batch.pop("document_ends", None)
        batch = {
            name: functional.pad(each, (0, padded - length), value=IGNORED if name == "targets" else 0)
            for name, each in batch.items()
        }
        if ends is not None and multiple is not None:  # all batches with as many samples shall have the same shape
            batch["document_ends"] = functional.pad(ends, (0, 1), value=padded)
        return batch

    def logits(self, model: Callable[..., Any], batch: Batch) -> torch.Tensor:
        inputs: Batch = {name: batch[name] for name in ("input_ids", "position_ids") if name in batch}
        if self._separates_documents and "document_ends" in batch:
            inputs["attention_mask"] = document_mask(batch["document_ends"], batch["input_ids"].shape[1])
        elif self._is_causal and "position_ids" not in batch:
            # Given no mask, transformers looks for documents in the positions, which waits for the GPU.
            inputs["attention_mask"] = torch.ones_like(batch["input_ids"])
        logits: torch.Tensor = model(**inputs, use_cache=False).logits
        return logits

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        rows, targets = logits.flatten(0, 1), batch["targets"].flatten()
        if (head := self.head_of_loss) is None:
            return self._cross_entropy(rows, targets)
        return linear_cross_entropy(rows, head.weight, head.bias, targets)

    def score(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        return self.loss(logits, batch).unsqueeze(0)

    def metrics(self, scores: torch.Tensor, units: int) -> dict[str, float]:
        loss = float(scores[0]) / units
        # math.exp raises an error where it overflows; a diverged training should report infinity and continue.
        perplexity = math.inf if loss > _LARGEST_EXPONENT else math.exp(loss)
        return {"eval/loss": loss, "eval/perplexity": perplexity}

    def save(self, folder: Path, weights: Mapping[str, torch.Tensor] | None) -> None:
        save_causal_lm(self.model, self._tokenizer, folder, weights, self.stored_types)

    def close(self) -> None:
        if self._head is not None:
            self._head.attach()
        if self._base is not None:
            self._base.release()


def _whole_model(model: CausalLM, weights: Path | None) -> tuple[nn.Module, dict[str, torch.dtype]]:
    """Load a model that is trained as a whole, and the types in which its weights are stored."""
    evict("base model")  # both may not fit into memory together
    if model.dtype != "float32":
        built = build_causal_lm(model, weights)
        return built, short_types(built)
    # Weights of 16 bits are read as they are, also for float32: then they stay pages of the model's files, and each
    # worker converts its own part.
    built = build_causal_lm(replace(model, dtype="auto"), weights)
    return built, dict.fromkeys(short_types(built), torch.float32)


def shared_base(model: CausalLM, *, shards: bool) -> SharedBase:
    """Return the base model that this worker caches, or load it. It does not depend on adapters, but on whether the
    strategy shards it."""
    bare = replace(model, lora=Lora())
    return cached("base model", (bare, shards), lambda: SharedBase(bare, Workers.current().device))


def repeats_its_passes(config: CausalLM, model: Any) -> bool:
    """Whether a model runs the same operations for all batches of a shape. It does not if it skips layers at random, or
    with activation checkpointing, which restores the CPU's random state."""
    leaves_out = getattr(model.config.get_text_config(), "layerdrop", None)
    return not (config.gradient_checkpointing or config.trust_remote_code or leaves_out)


def _check_isolation(config: CausalLM, model: nn.Module, logits: Callable[[nn.Module, Batch], torch.Tensor]) -> None:
    """Raise ``ValueError`` if the model does not keep isolated documents apart."""
    key = replace(config, lora=None)
    if not cached("keeps documents apart", key, lambda: keeps_documents_apart(model, functools.partial(logits, model))):
        raise ValueError(
            f"data.isolate_documents=true: a token of model.path={config.path} also sees other documents of its "
            "sequence, through recurrent layers or an attention that takes no borders; use data.packing=false, or "
            "data.isolate_documents=false"
        )


def _num_embeddings(model: Any) -> int:
    """Return the number of tokens that a model has embeddings for."""
    return int(model.get_input_embeddings().num_embeddings)


def _without_embedding(model: CausalLM, data: TextData, text: str, token: int, rows: int) -> str:
    """Describe a token of the data for which the model has no embedding. On a GPU, it would abort the process without
    an explanation."""
    fix = (
        "use the model's own tokenizer (model.tokenizer=null)"
        if model.tokenizer is not None
        else "remove it from the text, or save the model again after `model.resize_token_embeddings(len(tokenizer))`"
    )
    source = f"data.path={data.path}" if data.eval_path is None else f"data.path={data.path}, {data.eval_path}"
    return (
        f"{source}: some text has the token {text!r} ({token}), and model.path={model.path} has embeddings for {rows} "
        f"tokens; {fix}"
    )
