"""Context parallel: sequences are cut over workers, the model's tensors too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from sweeps_train.config.strategy import ContextParallel
from sweeps_train.data.sampler import Batch
from sweeps_train.distributed import Workers
from sweeps_train.precision import Precision
from sweeps_train.strategies.fsdp import FullyShardedStrategy
from sweeps_train.strategies.mesh import mesh
from sweeps_train.strategies.ulysses import cut_sequences, part


class ContextParallelStrategy(FullyShardedStrategy):
    """Workers are rows that share sequences; weights are cut over all of them, whatever they see."""

    def __init__(self, config: ContextParallel, workers: Workers, precision: Precision):
        super().__init__(config, workers, precision)
        replicas = config.replicas(workers.size)
        grid = mesh(workers, {"data": replicas, "context": workers.size // replicas})
        column, self._row = grid["data"], grid["context"]
        self.data = replace(workers, rank=column.get_local_rank(), size=replicas, group=column.get_group())
        self.stream = workers.rank  # each has tokens of its own

    def _wrap(self, model: nn.Module) -> nn.Module:
        cut_sequences(model, self._row)
        return super()._wrap(model)

    def backward(self, batches: Iterable[Batch], count: int, scale: float) -> torch.Tensor:
        # Gradients are averaged over all workers, and those of one sequence are to be added up.
        return super().backward(batches, count, scale * self._row.size())

    def _logits(self, model: Callable[..., Any], batch: Batch) -> tuple[torch.Tensor, Batch]:
        whole = self.task.padded(batch, multiple=self._row.size())
        return self.task.logits(model, whole), {name: part(each, self._row) for name, each in whole.items()}
