"""Tensor parallel, by itself or with full sharding: layers are cut over workers who see the same samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor.parallel import parallelize_module

from sweeps_train.config.strategy import FSDPTensorParallel, TensorParallel
from sweeps_train.data.sampler import Batch
from sweeps_train.distributed import Workers
from sweeps_train.precision import Precision
from sweeps_train.strategies.dtensor import ShardedStrategy, average, local
from sweeps_train.strategies.fsdp import shard
from sweeps_train.strategies.sequence_parallel import share_tokens
from sweeps_train.strategies.tensor_plan import REDUCED, styles, tensor_plan
from sweeps_train.tasks.task import Task


class TensorParallelStrategy(ShardedStrategy):
    """Workers are rows of those who see the same samples; a column has the same part of the layers, and is fully
    sharded or averages its gradients."""

    cuts_layers = True

    def __init__(self, config: TensorParallel | FSDPTensorParallel, workers: Workers, precision: Precision):
        replicas = config.replicas(workers.size)
        shape = {"data": replicas, "tensor": workers.size // replicas}
        super().__init__(workers, precision, shape, config.kind)
        self._config = config
        self.recomputes = config.activation_checkpointing
        self.counted_by = shape["tensor"]
        column = self.mesh["data"]
        self.data = replace(workers, rank=column.get_local_rank(), size=replicas, group=column.get_group())
        self.stream = self.data.rank
        self.speaks = self.mesh["tensor"].get_local_rank() == 0

    def spread(self, task: Task) -> None:
        super().spread(task)
        reduced = [f"{name}." for name, style in tensor_plan(task.model).items() if style == REDUCED]
        self._reduced = [each for name, each in self.parameters.items() if name.startswith((*reduced, *self._of_parts))]

    def _wrap(self, model: nn.Module) -> nn.Module:
        plan, workers = tensor_plan(model), self.mesh["tensor"]
        shares = self._config.sequence_parallel
        self._of_parts = share_tokens(model, plan, workers) if shares else []
        parallelize_module(model, workers, styles(plan, of_parts=shares))
        if isinstance(self._config, FSDPTensorParallel):
            return shard(model, self.mesh["data"], self._config, self.precision)
        return model.to(self.workers.device)

    def _logits(self, model: Callable[..., Any], batch: Batch) -> tuple[torch.Tensor, Batch]:
        if self._config.sequence_parallel:
            batch = self.task.padded(batch, multiple=self.counted_by)
        return super()._logits(model, batch)

    def backward(self, batches: Iterable[Batch], count: int, scale: float) -> torch.Tensor:
        total = super().backward(batches, count, scale)
        for each in self._reduced:
            if each.grad is not None:
                dist.all_reduce(local(each.grad), group=self.mesh.get_group("tensor"))
        if not isinstance(self.model, FSDPModule):
            average((each.grad for each in self.parameters.values() if each.grad is not None), self.data)
        return total

    def _accumulating(self, *, is_last: bool) -> AbstractContextManager[None]:
        if isinstance(self.model, FSDPModule):
            self.model.set_requires_gradient_sync(is_last)
        return nullcontext()
