"""Fully sharded data parallel: torch's ``fully_shard``, with the tensors of a layer put together when it is used."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)

from sweeps_train.config.strategy import FSDP, ContextParallel
from sweeps_train.distributed import Workers
from sweeps_train.precision import Precision
from sweeps_train.strategies.dtensor import ShardedStrategy
from sweeps_train.strategies.layers import repeated_layers


class FullyShardedStrategy(ShardedStrategy):
    """Every worker has samples of its own, or a part of them, and a part of every tensor."""

    model: FSDPModule  # type: ignore[assignment] # and an nn.Module, which typing cannot say of both

    def __init__(self, config: FSDP | ContextParallel, workers: Workers, precision: Precision):
        shard_size = config.shard_size or workers.size
        groups = workers.size // shard_size
        super().__init__(
            workers,
            precision,
            {"shard": shard_size} if groups == 1 else {"replicate": groups, "shard": shard_size},
            config.kind,
        )
        self._config = config
        self.recomputes = config.activation_checkpointing

    def _wrap(self, model: nn.Module) -> nn.Module:
        return shard(model, self.mesh, self._config, self.precision)

    def _accumulating(self, *, is_last: bool) -> AbstractContextManager[None]:
        self.model.set_requires_gradient_sync(is_last)
        return nullcontext()


class Sharding(Protocol):
    """Keys that strategies with full sharding have."""

    reshard_after_forward: bool
    cpu_offload: bool


def shard(model: nn.Module, mesh: DeviceMesh, config: Sharding, precision: Precision) -> nn.Module:
    """Cuts the model over a mesh of one dimension, or two of which the first has whole copies; layer by layer, so that
    what is put together at a time is one layer."""
    # Weights are gathered in the type that they are used in; gradients are added up in float32.
    mixed = MixedPrecisionPolicy(param_dtype=precision.type, reduce_dtype=torch.float32 if precision.type else None)
    offload = CPUOffloadPolicy(pin_memory=mesh.device_type == "cuda") if config.cpu_offload else OffloadPolicy()
    for module in [*repeated_layers(model), model]:
        fully_shard(
            module,
            mesh=mesh,
            reshard_after_forward=config.reshard_after_forward,
            mp_policy=mixed,
            offload_policy=offload,
        )
    return model
