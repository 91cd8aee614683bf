"""Cross-entropy over large vocabularies, without a float32 copy of all logits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional

from sweeps_train.data.packing import IGNORED

CHUNK = 2**25
"""Maximum number of logits per chunk: float32 copies of more need more memory than most models."""


def chunked_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Summed cross-entropy, computed in chunks where there are many logits.

    In float32, since a sum over thousands of tokens and a vocabulary of 100,000 is too inexact in 16 bits.

    Args:
        logits: Shape (tokens, vocabulary).
        targets: Shape (tokens,); ``IGNORED`` adds nothing.

    Returns:
        A scalar in float32.

    Example:
        >>> chunked_cross_entropy(torch.zeros(3, 8), torch.tensor([1, 2, IGNORED]))
        tensor(4.1589)
    """
    if logits.numel() <= CHUNK:
        return full_cross_entropy(logits, targets)
    if torch.is_grad_enabled() and logits.requires_grad:
        loss: torch.Tensor = _Chunked.apply(logits, targets)  # type: ignore[no-untyped-call]
        return loss
    return torch.stack([full_cross_entropy(*chunk) for chunk in _chunks(logits, targets)]).sum()


def full_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Summed cross-entropy in one call; for ``torch.compile``, which makes no copies."""
    return functional.cross_entropy(logits.float(), targets, ignore_index=IGNORED, reduction="sum")


class _Chunked(torch.autograd.Function):
    """Computes the gradient together with the loss, as Liger's kernels do (https://arxiv.org/abs/2410.10989), in the
    dtype of the logits: nothing else of their size is allocated."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        gradient = torch.empty_like(logits)
        total = torch.zeros((), dtype=torch.float32, device=logits.device)
        for rows, some, out in _chunks(logits, targets, gradient):
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


def _chunks(logits: torch.Tensor, *others: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """The same rows of all tensors, about ``CHUNK`` logits at a time."""
    size = max(1, CHUNK // logits.shape[1])
    return zip(*(torch.split(each, size) for each in (logits, *others)), strict=True)
