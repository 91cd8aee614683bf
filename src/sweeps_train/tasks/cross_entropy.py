"""Cross-entropy of next tokens over large vocabularies, without a copy of all logits in float32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional

from sweeps_train.data.packing import IGNORED

PIECE = 2**25
"""Logits of which it is taken at once: of more, copies in float32 need more memory than most models."""


def summed_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """In float32: a sum over thousands of tokens and a vocabulary of 100,000 loses too much in half precision.

    Args:
        logits: Shape (tokens, vocabulary).
        targets: Shape (tokens,); ``IGNORED`` adds nothing.
    """
    if logits.numel() <= PIECE:
        return whole_cross_entropy(logits, targets)
    if torch.is_grad_enabled() and logits.requires_grad:
        loss: torch.Tensor = _InPieces.apply(logits, targets)  # type: ignore[no-untyped-call]
        return loss
    return torch.stack([whole_cross_entropy(*piece) for piece in _pieces(logits, targets)]).sum()


def whole_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The same, all at once: for ``torch.compile``, which makes no copies."""
    return functional.cross_entropy(logits.float(), targets, ignore_index=IGNORED, reduction="sum")


class _InPieces(torch.autograd.Function):
    """The gradient is there as soon as the loss, as Liger's kernels have it (https://arxiv.org/abs/2410.10989), and is
    kept in the type of the logits: beside these, nothing else of their size."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        gradient = torch.empty_like(logits)
        total = torch.zeros((), dtype=torch.float32, device=logits.device)
        for rows, some, out in _pieces(logits, targets, gradient):
            scores = functional.log_softmax(rows.float(), dim=-1)
            total += functional.nll_loss(scores, some, ignore_index=IGNORED, reduction="sum")
            probabilities, chosen = scores.exp_(), some.clamp(min=0).unsqueeze(1)
            probabilities.scatter_add_(1, chosen, torch.full_like(chosen, -1, dtype=torch.float32))
            torch.mul(probabilities, (some != IGNORED).unsqueeze(1), out=out)
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    def backward(ctx: Any, factor: torch.Tensor) -> tuple[torch.Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient.mul_(factor), None


def _pieces(logits: torch.Tensor, *others: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """The same rows of all tensors, about ``PIECE`` logits at a time."""
    size = max(1, PIECE // logits.shape[1])
    return zip(*(torch.split(each, size) for each in (logits, *others)), strict=True)
