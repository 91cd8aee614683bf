"""Cross-entropy over large vocabularies, computed in chunks of tokens.

Logits are the largest tensor of most trainings: 8,192 tokens and a vocabulary of 128,000 make 2 GiB of them in 16 bits,
as much again for their gradient, and 4 GiB for a copy in float32. ``linear_cross_entropy`` never has more than a chunk
of them. It computes the gradient of a chunk together with its loss, while the chunk is there, as the fused kernel of
Liger does (Hsu et al., 2024, https://arxiv.org/abs/2410.10989): nothing is computed twice.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn import functional

from sweeps_train.compat.torch import is_dtensor
from sweeps_train.data.packing import IGNORED
from sweeps_train.tasks.vocabulary_shard import VocabularyShard

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

CHUNK = 2**25
"""Maximum number of logits per chunk; float32 copies of more logits would need more memory than most models."""


def linear_cross_entropy(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor
) -> torch.Tensor:
    """Compute the summed cross-entropy of the logits ``hidden @ weight.T + bias``, one chunk at a time.

    The multiplication is in the dtype of autocast, if it is active, and the rest in float32.

    Args:
        hidden: Shape (tokens, width).
        weight: Shape (vocabulary, width). If its rows are divided over workers, as a ``DTensor``, all of them must make
            this call with the same tokens; each computes the logits of its own words.
        bias: Shape (vocabulary,), if there is one; divided like the weight.
        targets: Shape (tokens,); ``IGNORED`` adds nothing.

    Returns:
        A scalar in float32.

    Example:
        >>> linear_cross_entropy(torch.ones(3, 2), torch.zeros(8, 2), None, torch.tensor([1, 2, IGNORED]))
        tensor(4.1589)
    """
    if is_dtensor(weight):
        return _sharded_cross_entropy(hidden, weight, bias, targets)
    if hidden.shape[0] * weight.shape[0] <= CHUNK:
        return full_cross_entropy(functional.linear(hidden, weight, bias), targets)
    if torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in (hidden, weight, bias)):
        if hidden.device.type == "cuda" and (fused := _liger_loss()) is not None:
            loss: torch.Tensor = fused(
                hidden, weight, targets, bias, ignore_index=IGNORED, reduction="sum", accum_dtype=torch.float32
            )
            return loss.float()
        chunked: torch.Tensor = _ChunkedLinear.apply(hidden, weight, bias, targets, None)  # type: ignore[no-untyped-call]
        return chunked
    chunks = _chunks(weight.shape[0], hidden, targets)
    return torch.stack([full_cross_entropy(functional.linear(rows, weight, bias), some) for rows, some in chunks]).sum()


def chunked_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Compute the summed cross-entropy of existing logits, without a float32 copy of all of them.

    It is computed in float32, since a sum over thousands of tokens and a vocabulary of 100,000 is too inexact in 16
    bits.

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
    return torch.stack([full_cross_entropy(*chunk) for chunk in _chunks(logits.shape[1], logits, targets)]).sum()


def full_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Compute the summed cross-entropy in one call, for ``torch.compile``, which itself avoids the copies."""
    return functional.cross_entropy(logits.float(), targets, ignore_index=IGNORED, reduction="sum")


def _sharded_cross_entropy(
    hidden: torch.Tensor, weight: DTensor, bias: torch.Tensor | None, targets: torch.Tensor
) -> torch.Tensor:
    shard = VocabularyShard.of(weight)
    own_weight = weight.to_local()
    own_bias = bias.to_local() if is_dtensor(bias) else bias
    if not torch.is_grad_enabled():  # otherwise gradients would be computed for parameters that require them
        own_weight, own_bias = own_weight.detach(), None if own_bias is None else own_bias.detach()
    loss: torch.Tensor = _ChunkedLinear.apply(hidden, own_weight, own_bias, targets, shard)  # type: ignore[no-untyped-call]
    return loss


class _ChunkedLinear(torch.autograd.Function):
    """Autograd function that saves the gradients of its inputs, which are small compared to the logits. The weight's
    gradient is summed over the chunks in float32, even if the weight has 16 bits."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        targets: torch.Tensor,
        shard: VocabularyShard | None,
    ) -> torch.Tensor:
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
        needs_hidden, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        of_hidden = torch.empty_like(hidden) if needs_hidden else None
        of_weight = torch.zeros_like(weight, dtype=torch.float32) if needs_weight else None
        of_bias = torch.zeros_like(bias, dtype=torch.float32) if bias is not None and needs_bias else None
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        vocabulary = weight.shape[0] if shard is None else shard.largest
        loss_and_gradient = _loss_and_gradient if shard is None else shard.loss_and_gradient
        with torch.autocast(device, enabled=False):
            cast_weight, cast_bias = weight.to(dtype), None if bias is None else bias.to(dtype)
            outs = _chunks(vocabulary, of_hidden) if of_hidden is not None else None
            for rows, some in _chunks(vocabulary, hidden.to(dtype), targets):
                gradient = functional.linear(rows, cast_weight, cast_bias)
                total += loss_and_gradient(gradient, some, gradient)
                if outs is not None:
                    next(outs)[0].copy_(gradient @ cast_weight)
                if of_weight is not None:
                    of_weight += gradient.T @ rows
                if of_bias is not None:
                    of_bias += gradient.sum(dim=0, dtype=torch.float32)
        if shard is not None and of_hidden is not None:  # the other words add to it
            dist.all_reduce(of_hidden, group=shard.group)
        found = ((of_hidden, hidden), (of_weight, weight), (of_bias, bias))
        ctx.save_for_backward(*(None if a is None or like is None else a.to(like.dtype) for a, like in found))
        return total

    @staticmethod
    def backward(ctx: Any, factor: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return *(None if each is None else each.mul_(factor) for each in ctx.saved_tensors), None, None


class _Chunked(torch.autograd.Function):
    """Autograd function that saves the gradient of the logits in their dtype, and allocates nothing else of their
    size."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        gradient = torch.empty_like(logits)
        total = torch.zeros((), dtype=torch.float32, device=logits.device)
        for rows, some, out in _chunks(logits.shape[1], logits, targets, gradient):
            total += _loss_and_gradient(rows, some, out)
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    def backward(ctx: Any, factor: torch.Tensor) -> tuple[torch.Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient.mul_(factor), None


def _loss_and_gradient(logits: torch.Tensor, targets: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Return the summed loss of a chunk, and write its gradient to ``out``, which may be the logits."""
    scores = functional.log_softmax(logits.float(), dim=-1)
    loss = functional.nll_loss(scores, targets, ignore_index=IGNORED, reduction="sum")
    probabilities, chosen = scores.exp_(), targets.clamp(min=0).unsqueeze(1)
    probabilities.scatter_add_(1, chosen, torch.full_like(chosen, -1, dtype=torch.float32))
    torch.mul(probabilities, (targets != IGNORED).unsqueeze(1), out=out)
    return loss


def _chunks(vocabulary: int, *tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield the rows of all tensors, in chunks of about ``CHUNK`` logits."""
    size = max(1, CHUNK // vocabulary)
    return zip(*(torch.split(each, size) for each in tensors), strict=True)


@functools.cache
def _liger_loss() -> Any:
    """Return Liger's fused kernel if it is installed (``pip install ray-sweeps[liger]``), else None."""
    if importlib.util.find_spec("liger_kernel") is None:
        return None
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

    return liger_fused_linear_cross_entropy
