"""Fully sharded data parallel: the model is wrapped by torch's ``fully_shard``, layer by layer."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any

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

from sweeps_train.config.strategy import FSDP, ContextParallel, FSDPTensorParallel
from sweeps_train.devices.device_operations import pins_memory
from sweeps_train.steps.precision import Precision
from sweeps_train.steps.trained_types import hold_in_float32
from sweeps_train.strategies.dtensor import ShardedStrategy
from sweeps_train.strategies.layers import BATCH_NORMS, repeated_layers
from sweeps_train.strategies.mesh import mesh
from sweeps_train.strategies.strategy import Capabilities
from sweeps_train.workers.distributed import Workers


class FullyShardedStrategy(ShardedStrategy):
    """Fully sharded training: every worker has its own samples, or its own part of them, and a shard of each
    parameter."""

    model: FSDPModule  # type: ignore[assignment] # and an nn.Module, which typing cannot say of both

    def __init__(
        self,
        config: FSDP | ContextParallel,
        workers: Workers,
        precision: Precision,
        data_parallel: Workers | None = None,
    ):
        capabilities = Capabilities(
            random_stream=workers.rank, activation_checkpointing=config.activation_checkpointing
        )
        super().__init__(workers, precision, capabilities, data_parallel)
        self._mesh = sharding_mesh(workers, config.shard_size)
        self._config = config

    def _wrap(self, model: nn.Module) -> nn.Module:
        return wrap_fsdp(model, self._mesh, self._config, self.precision, self.task.stored_types)


def sharding_mesh(workers: Workers, shard_size: int | None) -> DeviceMesh:
    """Create the mesh for ``wrap_fsdp``, in which ``shard_size`` workers, or all of them, share one copy of the model;
    every worker must call it."""
    shard_size = shard_size or workers.size
    groups = workers.size // shard_size
    return mesh(workers, {"shard": shard_size} if groups == 1 else {"replicate": groups, "shard": shard_size})


def wrap_fsdp(
    model: nn.Module,
    mesh: DeviceMesh,
    config: FSDP | ContextParallel | FSDPTensorParallel,
    precision: Precision,
    in_float32: Collection[str],
) -> nn.Module:
    """Shard a model layer by layer, so that one layer at a time is gathered. The model is changed in place, to an
    ``FSDPModule``.

    Args:
        model: The model, which is changed in place.
        mesh: Has one dimension, over which tensors are sharded; or two, the first of which has full copies.
        config: Options of ``fully_shard``.
        precision: Weights are gathered in its dtype; gradients are reduced in float32.
        in_float32: Names of the weights that are trained in float32. Each layer is converted when it is sharded, since
            a copy of the whole model in float32 on each worker would not fit into the machine.
    """
    # A model whose head is taken out returns its hidden states as a view, which nothing here changes in place.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    mixed = MixedPrecisionPolicy(param_dtype=precision.type, reduce_dtype=torch.float32 if precision.type else None)
    pinned = pins_memory(torch.device(mesh.device_type))
    offload = CPUOffloadPolicy(pin_memory=pinned) if config.cpu_offload else OffloadPolicy()
    names = {module: name for name, module in model.named_modules()}
    norms = [module for module in names if isinstance(module, BATCH_NORMS) and precision.type is not None]
    for module in dict.fromkeys([*norms, *repeated_layers(model), model]):
        hold_in_float32(module, in_float32, names[module], torch.device(mesh.device_type))
        fully_shard(
            module,
            mesh=mesh,
            # Embeddings and head, which belong to no layer, stay gathered: the loss applies the head, and the backward
            # pass begins with it.
            reshard_after_forward=config.reshard_after_forward and module is not model,
            mp_policy=MixedPrecisionPolicy() if module in norms else mixed,
            offload_policy=offload,
        )
    # Otherwise a worker whose loss leaves out a parameter would send less than the others expect.
    send_zeros: Any = getattr(model, "set_reduce_scatter_unused_params", None)
    if send_zeros is not None:  # older versions of torch have no such setting
        send_zeros(True)  # noqa: FBT003 - as in its documentation
    return model
