"""Base of the strategies that shard a model's tensors over workers as torch's ``DTensor``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from sweeps_train.compat.torch import local_place, local_shard, shard_place
from sweeps_train.strategies.all_reduce import average_in_chunks
from sweeps_train.strategies.gradient_clipping import clip_sharded
from sweeps_train.strategies.layers import checkpoint_activations
from sweeps_train.strategies.strategy import Key, Strategy, trained_parameters
from sweeps_train.tasks.task import Task
from sweeps_train.workers.distributed import Workers

MOST_UNSHARDED = 256 * 2**20
"""Maximum bytes of all gradients, in float32, up to which each worker keeps them whole between micro batches and
exchanges them once a step. Adapters are below this size, whole language models are not."""


class ShardedStrategy(Strategy):
    """Base class of strategies whose parameters are ``DTensor``, or plain tensors replicated on all workers."""

    def parallelize(self, task: Task) -> None:
        self.task = task
        if self.capabilities.activation_checkpointing:
            checkpoint_activations(task.model, early_stop=not self.capabilities.communicates_in_layers)
        # Each layer moves to the device when it is sharded: the full model may not fit there.
        self.model = self._wrap(task.model.train())
        self.parameters = trained_parameters(task.model)
        gradient_bytes = 4 * sum(each.numel() for each in self.parameters.values())
        self._keeps_whole_gradients = gradient_bytes <= MOST_UNSHARDED

    def _before_micro_batch(self, *, is_last: bool) -> None:
        if isinstance(self.model, FSDPModule):
            # Gradients that are not reduced stay whole on every worker, in float32, until the last micro batch.
            self.model.set_requires_gradient_sync(is_last or not self._keeps_whole_gradients)
            self.model.set_requires_all_reduce(is_last)  # between the copies of a model that is sharded in groups

    def clip_grad_norm(self, max_norm: float) -> torch.Tensor:
        return clip_sharded(self.parameters.values(), self._copies, max_norm, self.workers)

    def _copies(self, parameter: nn.Parameter) -> int:
        """Return the number of workers that hold the same shard of a parameter as this one."""
        if not isinstance(parameter, DTensor):
            return self.workers.size
        return self.workers.size // prod(
            parameter.device_mesh.size(dimension)
            for dimension, placement in enumerate(parameter.placements)
            if not placement.is_replicate()
        )

    def saved_weights(self) -> dict[str, torch.Tensor]:
        model, frozen = self.task.model, set(self.task.frozen)
        buffers = saved_buffers(model)  # first: this reshards weights that an evaluation has left gathered
        trained = {name: each for name, each in model.named_parameters() if name not in frozen}
        return {**trained, **buffers}

    def full_weights(self) -> dict[str, torch.Tensor] | None:
        return self.gather_full(self.saved_weights())

    def place(self, tensor: torch.Tensor) -> tuple[slice, ...] | None:
        return shard_place(tensor) if isinstance(tensor, DTensor) else super().place(tensor)

    def gather_full(self, shards: Mapping[Key, torch.Tensor]) -> dict[Key, torch.Tensor]:
        gathered = {}
        for name, shard in shards.items():
            full = _full(shard)
            if self.workers.rank == 0:
                gathered[name] = full.cpu()
        return gathered

    def shard_like(self, name: str, full: torch.Tensor) -> torch.Tensor:
        parameter = self.parameters[name]
        if not isinstance(parameter, DTensor):
            return full.to(parameter.device)
        # Every worker sees the full tensor and takes its own shard of it, so that nothing is sent; on the CPU that is a
        # view, so that what is not this worker's is not even read.
        shard = DTensor.from_local(
            full[local_place(parameter)].to(parameter.device_mesh.device_type),
            parameter.device_mesh,
            parameter.placements,
            run_check=False,
            shape=full.shape,
            stride=full.stride(),
        )
        return shard.to(parameter.device)


def saved_buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the buffers that are part of a model's state dict."""
    saved = model.state_dict(keep_vars=True)
    return {name: each for name, each in model.named_buffers() if name in saved}


def _full(tensor: torch.Tensor) -> torch.Tensor:
    if not isinstance(tensor, DTensor):
        return tensor
    # With CPU offload the mesh is still of GPUs, since only they can communicate.
    on_mesh = tensor.detach().to(tensor.device_mesh.device_type)
    assert isinstance(on_mesh, DTensor)
    full: torch.Tensor = on_mesh.full_tensor()
    return full


def average(gradients: Iterable[torch.Tensor], workers: Workers) -> None:
    """Average gradients over the replicas."""
    if workers.size == 1:
        return
    average_in_chunks([local_shard(gradient) for gradient in gradients], workers.size, workers.group)
