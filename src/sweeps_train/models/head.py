"""The head of a language model, detached from its forward pass so that the loss applies it to chunks of tokens."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn

_log = logging.getLogger(__name__)


class DetachedHead:
    """The linear layer that the model's forward pass skips, so that the pass returns hidden states instead of
    logits."""

    def __init__(self, layer: nn.Linear):
        self._layer = layer
        layer.forward = _unchanged  # type: ignore[assignment, method-assign]

    @property
    def weight(self) -> torch.Tensor:
        """Weight of shape (vocabulary, width), available after the forward pass, in which a sharding strategy gathers
        it."""
        return self._layer.weight

    @property
    def bias(self) -> torch.Tensor | None:
        """Bias of shape (vocabulary,), if the head has one."""
        return self._layer.bias

    def attach(self) -> None:
        """Make the model's forward pass return logits again."""
        del self._layer.forward


def detach_head(model: Any) -> DetachedHead | None:
    """Take a model's head out of its forward pass, in place. The model is a causal language model of transformers,
    possibly with adapters of peft.

    Returns:
        The head; None, and an unchanged model, if the logits are not the result of a plain linear layer: some models
        scale or limit them, and an adapter on the head adds to them.
    """
    bare: Any = model.get_base_model() if hasattr(model, "get_base_model") else model
    head = bare.get_output_embeddings()
    if type(head) is nn.Linear and _is_last_step(bare, head):
        return DetachedHead(head)
    _log.info(
        "the logits of a %s are not those of a plain linear layer: they are computed all at once instead of in chunks",
        type(bare).__name__,
    )
    return None


@torch.no_grad()
def _is_last_step(model: Any, head: nn.Linear) -> bool:
    """Whether a model's logits are exactly the head applied to the last hidden state. This is tested on random hidden
    states without running any layer."""
    decoder, weight = model.base_model, head.weight
    if decoder is model:
        return False
    generator = torch.Generator().manual_seed(0)  # the default one belongs to the training
    hidden = 10 * torch.randn(1, 2, head.in_features, generator=generator).to(weight.device, weight.dtype)
    decoder.forward = lambda *_, **__: _Decoded(hidden)
    try:
        logits = model(input_ids=torch.zeros(1, 2, dtype=torch.int64, device=weight.device), use_cache=False).logits
    except Exception:  # noqa: BLE001 - code of any model, which expects more of its decoder
        return False
    finally:
        del decoder.forward
    return torch.equal(logits, head(hidden))


class _Decoded:
    """Decoder output that contains only the last hidden state."""

    def __init__(self, hidden: torch.Tensor):
        self.last_hidden_state = hidden

    def __getattr__(self, name: str) -> None:
        return None

    def __getitem__(self, index: int | slice) -> Any:
        return (self.last_hidden_state,)[index]


def _unchanged(hidden: torch.Tensor) -> torch.Tensor:
    return hidden
