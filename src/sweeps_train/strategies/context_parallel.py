"""Context parallel: sequences are sharded over workers, and so are the model's tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from sweeps_train.config.strategy import ContextParallel
from sweeps_train.data.sample_order import Batch
from sweeps_train.steps.precision import Precision
from sweeps_train.strategies.fsdp import FullyShardedStrategy
from sweeps_train.strategies.mesh import mesh, replicas
from sweeps_train.strategies.ulysses import shard_sequences, shard_tokens
from sweeps_train.workers.distributed import Workers


class ContextParallelStrategy(FullyShardedStrategy):
    """Context parallelism: the workers of a mesh row share sequences; weights are sharded over all workers."""

    def __init__(self, config: ContextParallel, workers: Workers, precision: Precision):
        num_replicas = config.replicas(workers.size)
        grid = mesh(workers, {"data": num_replicas, "context": workers.size // num_replicas})
        self._row = grid["context"]
        super().__init__(config, workers, precision, replicas(workers, grid["data"]))

    def _wrap(self, model: nn.Module) -> nn.Module:
        shard_sequences(model, self._row)
        return super()._wrap(model)

    def backward(
        self, batches: Sequence[Batch], scale: float | torch.Tensor, *, defer_grad_sync: bool = False
    ) -> torch.Tensor:
        # FSDP averages gradients over all workers, but those of one sequence are to be summed.
        return super().backward(batches, scale * self._row.size(), defer_grad_sync=defer_grad_sync)

    def _logits(self, model: Callable[..., Any], batch: Batch) -> tuple[torch.Tensor, Batch]:
        padded = self.task.pad(batch, multiple=self._row.size())
        # The loss needs only values of single tokens, none of a whole sequence.
        sequences = padded["input_ids"].shape
        own = {name: shard_tokens(each, self._row) for name, each in padded.items() if each.shape == sequences}
        return self.task.logits(model, padded), own
