"""Sums and means of gradients over workers, many small tensors at a time, such as hundreds of adapters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import nn

from sweeps_train.compat.torch import multiply_in_place

CHUNK_BYTES = 32 * 2**20
"""Maximum bytes of gradients that are sent together in one all-reduce: large enough for the speed of the network, and
small beside the gradients, since the copy is made when memory is short."""


@torch.no_grad()
def average_gradients(
    parameters: Sequence[nn.Parameter], num_workers: int, sent_along: Sequence[torch.Tensor] = ()
) -> bool:
    """Average the gradients of parameters, and the tensors ``sent_along``, over workers, even if workers lack some
    gradients. A parameter that no worker has used keeps no gradient, since a gradient of zero would apply weight decay.
    Return whether each worker has used all parameters."""
    used = torch.tensor([float(each.grad is not None) for each in parameters])
    used = used.to(parameters[0].device, non_blocking=True)
    unused = [index for index, each in enumerate(parameters) if each.grad is None]
    for index in unused:
        parameters[index].grad = torch.zeros_like(parameters[index])
    gradients = [each.grad for each in parameters if each.grad is not None]
    average_in_chunks([*sent_along, used, *gradients], num_workers)
    users = (used * num_workers).round().tolist()
    for index in unused:
        if not users[index]:
            parameters[index].grad = None
    return bool(min(users) == num_workers)


@torch.no_grad()
def average_in_chunks(
    gradients: Sequence[torch.Tensor],
    num_workers: int,
    group: dist.ProcessGroup | None = None,
    max_bytes: int = CHUNK_BYTES,
) -> None:
    """Average gradients, which are in the same order on all workers of a group (default: all workers), in place; with
    two workers bit for bit as ``DistributedDataParallel`` does. Gradients are copied to send several in one all-reduce,
    up to ``max_bytes``; a larger one is sent without a copy."""
    for chunk in _chunks(gradients, max_bytes):
        multiply_in_place(chunk, 1 / num_workers)
        _add_up(chunk, group)


@torch.no_grad()
def sum_in_chunks(gradients: Sequence[torch.Tensor], group: dist.ProcessGroup | None = None) -> None:
    """Sum gradients over the workers of a group, in place and in the same order on all of them."""
    for chunk in _chunks(gradients, CHUNK_BYTES):
        _add_up(chunk, group)


def _add_up(chunk: list[torch.Tensor], group: dist.ProcessGroup | None) -> None:
    if len(chunk) == 1 and chunk[0].is_contiguous():
        dist.all_reduce(chunk[0], group=group)
        return
    flat = torch.cat([gradient.flatten() for gradient in chunk])
    dist.all_reduce(flat, group=group)
    sizes = [gradient.numel() for gradient in chunk]
    for gradient, added in zip(chunk, torch.split(flat, sizes), strict=True):
        gradient.copy_(added.view_as(gradient))


def _chunks(gradients: Sequence[torch.Tensor], max_bytes: int) -> Iterator[list[torch.Tensor]]:
    """Yield runs of gradients of one dtype with at most ``max_bytes`` together, or one larger gradient."""
    for dtype in sorted({gradient.dtype for gradient in gradients}, key=str):  # the same order on all workers
        chunk: list[torch.Tensor] = []
        size = 0
        for gradient in (each for each in gradients if each.dtype == dtype):
            if chunk and size + gradient.nbytes > max_bytes:
                yield chunk
                chunk, size = [], 0
            chunk.append(gradient)
            size += gradient.nbytes
        yield chunk
