"""Clipping of gradients by their norm, where workers hold shards of them; ``Strategy.clip_grad_norm`` clips whole ones
with torch's function."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch import nn

from sweeps_train.compat.torch import local_shard, multiply_in_place
from sweeps_train.workers.distributed import Workers


@torch.no_grad()
def clip_sharded(
    parameters: Iterable[nn.Parameter], copies_of: Callable[[nn.Parameter], int], max_norm: float, workers: Workers
) -> torch.Tensor:
    """Scale the gradients of sharded parameters down to a common norm of at most ``max_norm`` over all workers.
    ``copies_of`` returns the number of workers that hold the same shard of a parameter. Return the norm before scaling,
    a scalar, the same on all workers."""
    shards = [(local_shard(each.grad), copies_of(each)) for each in parameters if each.grad is not None]
    squares = torch.zeros((), dtype=torch.float64, device=workers.device)
    for copies in {copies for _, copies in shards}:
        norm = nn.utils.get_total_norm([shard for shard, each in shards if each == copies])
        squares += norm.to(workers.device, torch.float64) ** 2 / copies
    dist.all_reduce(squares)
    norm = squares.sqrt()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0).float()
    for device in {shard.device for shard, _ in shards}:
        multiply_in_place([shard for shard, _ in shards if shard.device == device], factor.to(device))
    return norm
