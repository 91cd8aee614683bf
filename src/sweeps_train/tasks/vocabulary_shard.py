"""The part of a vocabulary whose rows in the head's weight are held by one worker of a tensor parallel strategy.

Each worker computes the logits of its own words. For the softmax, workers exchange three numbers for each token: the
largest logit, the sum of exponentials, and the logit of the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from sweeps_train.data.packing import IGNORED

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


@dataclass(frozen=True)
class VocabularyShard:
    """The contiguous range of words that this worker holds."""

    first: int
    """Index of the first word."""
    largest: int
    """Number of words of the worker that has the most; equal on all workers, so that all form the same chunks of
    tokens."""
    group: dist.ProcessGroup
    """The workers that hold the other words."""

    @classmethod
    def of(cls, weight: DTensor) -> VocabularyShard:
        """Return the shard of a weight of shape (vocabulary, width) that is sharded by rows."""
        mesh = weight.device_mesh
        largest = -(-weight.shape[0] // mesh.size())
        return cls(mesh.get_local_rank() * largest, largest, mesh.get_group())

    def loss_and_gradient(self, logits: torch.Tensor, targets: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Return the summed cross-entropy over all words; every worker of the group must call it.

        Args:
            logits: Logits of this worker's words, of shape (tokens, own words); may be changed.
            targets: Shape (tokens,), with indices in the whole vocabulary; ``IGNORED`` adds nothing.
            out: Tensor to which the gradient is written; may be the logits themselves.

        Returns:
            A scalar in float32, the same on all workers.
        """
        scores = logits.float()
        largest = scores.amax(dim=-1)
        dist.all_reduce(largest, dist.ReduceOp.MAX, self.group)
        scores -= largest.unsqueeze(1)
        place = targets - self.first
        is_own = (place >= 0) & (place < scores.shape[1])
        place = place.clamp(0, scores.shape[1] - 1).unsqueeze(1)
        of_target = scores.gather(1, place).squeeze(1) * is_own
        probabilities = scores.exp_()
        sums = torch.stack([probabilities.sum(dim=-1), of_target])
        dist.all_reduce(sums, group=self.group)
        counts = targets != IGNORED
        probabilities /= sums[0].unsqueeze(1)
        probabilities.scatter_add_(1, place, -is_own.float().unsqueeze(1))
        torch.mul(probabilities, counts.unsqueeze(1), out=out)
        return ((sums[0].log() - sums[1]) * counts).sum()
