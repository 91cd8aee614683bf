"""Tensor parallel, alone or with full sharding: layers are sharded over workers that process the same samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor.parallel import parallelize_module

from sweeps_train.compat.torch import local_shard
from sweeps_train.config.strategy import FSDPTensorParallel, TensorParallel
from sweeps_train.data.sample_order import Batch
from sweeps_train.steps.precision import Precision
from sweeps_train.steps.trained_types import hold_in_float32
from sweeps_train.strategies.all_reduce import sum_in_chunks
from sweeps_train.strategies.dtensor import ShardedStrategy, average
from sweeps_train.strategies.fsdp import wrap_fsdp
from sweeps_train.strategies.mesh import mesh, replicas
from sweeps_train.strategies.sequence_parallel import share_tokens
from sweeps_train.strategies.strategy import Capabilities
from sweeps_train.strategies.tensor_plan import REDUCED, parallel_styles, tensor_plan
from sweeps_train.tasks.task import Task
from sweeps_train.workers.distributed import Workers


class TensorParallelStrategy(ShardedStrategy):
    """Tensor parallelism: the workers of a mesh row process the same samples, each with a shard of every layer. The
    workers of a column have the same shard; they are fully sharded or average their gradients."""

    def __init__(self, config: TensorParallel | FSDPTensorParallel, workers: Workers, precision: Precision):
        num_replicas = config.replicas(workers.size)
        self._tensor_size = workers.size // num_replicas
        self._mesh = mesh(workers, {"data": num_replicas, "tensor": self._tensor_size})
        data_parallel = replicas(workers, self._mesh["data"])
        capabilities = Capabilities(
            random_stream=data_parallel.rank,
            is_reporting_rank=self._mesh["tensor"].get_local_rank() == 0,
            activation_checkpointing=config.activation_checkpointing,
            communicates_in_layers=True,
            flop_counters=self._tensor_size,
        )
        super().__init__(workers, precision, capabilities, data_parallel)
        self._config = config

    def parallelize(self, task: Task) -> None:
        super().parallelize(task)
        replicated = [f"{name}." for name, style in tensor_plan(task.model).items() if style == REDUCED]
        prefixes = (*replicated, *self._token_sharded)
        self._summed_over_row = [each for name, each in self.parameters.items() if name.startswith(prefixes)]

    def _wrap(self, model: nn.Module) -> nn.Module:
        plan, row = tensor_plan(model), self._mesh["tensor"]
        shards_tokens = self._config.sequence_parallel
        self._token_sharded = share_tokens(model, plan, row) if shards_tokens else []
        in_float32 = self.task.stored_types
        for name, style in parallel_styles(plan, shards_tokens=shards_tokens).items():
            layer = model.get_submodule(name)
            # One layer at a time: not all full layers in float32 fit into memory at once.
            hold_in_float32(layer, in_float32, name, self.workers.device)
            parallelize_module(layer, row, style)
        hold_in_float32(model, in_float32, device=self.workers.device)
        if isinstance(self._config, FSDPTensorParallel):
            return wrap_fsdp(model, self._mesh["data"], self._config, self.precision, in_float32)
        return model.to(self.workers.device)

    def _logits(self, model: Callable[..., Any], batch: Batch) -> tuple[torch.Tensor, Batch]:
        if self._config.sequence_parallel:
            batch = self.task.pad(batch, multiple=self._tensor_size)
        return super()._logits(model, batch)

    def _after_last_backward(self) -> None:
        partial = [local_shard(each.grad) for each in self._summed_over_row if each.grad is not None]
        sum_in_chunks(partial, self._mesh.get_group("tensor"))
        if not isinstance(self.model, FSDPModule):
            average(self._gradients, self.data_parallel)
