"""Causal language modelling without data and weight values, to compute the memory of a training."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from sweeps_train.compat.fake_tensors import documents_alone
from sweeps_train.config import CausalLM, TextData, TrainingConfig
from sweeps_train.data.sample_order import Batch
from sweeps_train.models.attention import use_causal_attention
from sweeps_train.models.causal_lm import build_blank_causal_lm, max_positions
from sweeps_train.models.head import DetachedHead
from sweeps_train.models.lora import leave_casts_to_autocast
from sweeps_train.steps.trained_types import hold_in_float32, short_types
from sweeps_train.strategies.layers import bare_model
from sweeps_train.tasks.causal_lm import CausalLMTraining, repeats_its_passes
from sweeps_train.tasks.cross_entropy import chunked_cross_entropy

_CHANGES_OF_LOGITS = ("final_logit_softcapping", "logits_scaling", "logit_scale", "lm_head_multiplier")
"""Keys of transformers' configs that make a model's logits differ from a plain linear layer's. A real training detects
this from tensor values, which are missing here."""


class BlankCausalLM(CausalLMTraining):
    """Task without data and weight values, which is run on fake tensors to compute its memory."""

    def __init__(self, config: TrainingConfig, *, autocasts: bool):
        """Make the task of a training, which computes in 16 bits if it ``autocasts``."""
        assert isinstance(config.model, CausalLM) and isinstance(config.data, TextData)
        self._base = None
        self.model = build_blank_causal_lm(config.model)
        self.stored_types = short_types(self.model)
        hold_in_float32(self.model, self.stored_types)
        named = self.model.named_parameters(remove_duplicate=False)
        self.frozen = [name for name, each in named if not each.requires_grad]
        self._sequence_length = min(config.data.sequence_length, max_positions(self.model) or sys.maxsize)
        if autocasts:
            leave_casts_to_autocast(self.model)
        if config.model.lora is not None and config.strategy.kind == "ddp":
            from sweeps_train.models.fused_lora import fuse_lora  # imports peft

            fuse_lora(self.model)
        self.repeats_its_passes = repeats_its_passes(config.model, self.model)
        self._is_causal, self._separates_documents = use_causal_attention(self.model), False
        self._head = self.head_of_loss = _detached_head(bare_model(self.model))
        self._cross_entropy = chunked_cross_entropy

    @property
    def keeps_logits(self) -> bool:
        """Whether all logits exist at once, rather than in chunks of tokens."""
        return self._head is None

    def logits(self, model: Callable[..., Any], batch: Batch) -> torch.Tensor:
        with documents_alone():
            return super().logits(model, batch)

    def longest_batch(self, rows: int) -> Batch:
        """Return a batch of the given size with sequences of maximum length."""
        tokens = torch.zeros((rows, self._sequence_length), dtype=torch.long)
        return {"input_ids": tokens, "targets": tokens}


def _detached_head(model: Any) -> DetachedHead | None:
    sizes, head = model.config.get_text_config(), model.get_output_embeddings()
    changed = any(getattr(sizes, name, None) not in (None, 1) for name in _CHANGES_OF_LOGITS)
    return None if changed or type(head) is not nn.Linear else DetachedHead(head)
