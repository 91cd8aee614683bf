"""What strategies share that cut a model's tensors over workers (torch's ``DTensor``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, distribute_tensor

from sweeps_train.distributed import Workers
from sweeps_train.precision import Precision
from sweeps_train.strategies.layers import checkpoint_activations
from sweeps_train.strategies.mesh import mesh
from sweeps_train.strategies.strategy import Key, Strategy, trained
from sweeps_train.tasks.task import Task


class ShardedStrategy(Strategy):
    """Parameters are ``DTensor`` on ``mesh`` or a part of it, or plain tensors that all workers have alike."""

    mesh: DeviceMesh
    cuts_layers = False
    """Workers talk to each other within a layer, through ``DTensor``."""

    def __init__(self, workers: Workers, precision: Precision, shape: dict[str, int], key: str):
        """
        Args:
            workers: All of them.
            precision: Of the forward pass.
            shape: Of the mesh.
            key: Of the strategy, for messages.

        Raises:
            ValueError: The precision is fp16.
        """
        super().__init__(workers, precision)
        refuse_fp16(precision, key)
        self.mesh = mesh(workers, shape)

    def spread(self, task: Task) -> None:
        self.task = task
        if self.recomputes:
            checkpoint_activations(task.model, to_the_end=self.cuts_layers)
        # Each layer goes to the device when it is cut: the whole model may not fit there.
        self.model = self._wrap(task.model.train())
        self.parameters = trained(task.model)

    def clip(self, max_norm: float) -> None:
        clip_parts(
            [(each.grad, self.copies(each)) for each in self.parameters.values() if each.grad is not None],
            max_norm,
            self.workers,
        )

    def copies(self, parameter: torch.Tensor) -> int:
        """How many workers hold what this one holds of a parameter."""
        if not isinstance(parameter, DTensor):
            return self.workers.size
        return self.workers.size // prod(
            parameter.device_mesh.size(dimension)
            for dimension, placed in enumerate(parameter.placements)
            if not placed.is_replicate()
        )

    def weights(self) -> dict[str, torch.Tensor] | None:
        model, frozen = self.task.model, set(self.task.frozen)
        buffers = saved_buffers(model)  # first: where an evaluation has put weights together, this cuts them again
        learned = {name: each for name, each in model.named_parameters() if name not in frozen}
        return self.whole({**learned, **buffers})

    def whole(self, parts: Mapping[Key, torch.Tensor]) -> dict[Key, torch.Tensor]:
        wholes = {}
        for name, part in parts.items():
            full = _full(part)
            if self.workers.rank == 0:
                wholes[name] = full.cpu()
        return wholes

    def part(self, name: str, whole: torch.Tensor) -> torch.Tensor:
        parameter = self.parameters[name]
        if not isinstance(parameter, DTensor):
            return whole.to(parameter.device)
        # Every worker has read the whole: each takes its own part of it, and nothing is sent.
        cut = distribute_tensor(
            whole.to(parameter.device_mesh.device_type),
            parameter.device_mesh,
            parameter.placements,
            src_data_rank=None,
        )
        return cut.to(parameter.device)


def refuse_fp16(precision: Precision, kind: str) -> None:
    """
    Raises:
        ValueError: The precision is fp16.
    """
    if precision.scaler.is_enabled():
        raise ValueError(
            f"train.precision=fp16 does not go with strategy.kind={kind}: gradients that overflow on one worker "
            "must be skipped by all; use bf16, fp32, or strategy.kind=ddp"
        )


def saved_buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    """The buffers that belong to what a model has learned."""
    saved = model.state_dict(keep_vars=True)
    return {name: each for name, each in model.named_buffers() if name in saved}


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this worker holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _full(tensor: torch.Tensor) -> torch.Tensor:
    if not isinstance(tensor, DTensor):
        return tensor
    # Where tensors are kept in the CPU's memory, the mesh is still of GPUs, which alone can talk to each other.
    there = tensor.detach().to(tensor.device_mesh.device_type)
    assert isinstance(there, DTensor)
    full: torch.Tensor = there.full_tensor()
    return full


@torch.no_grad()
def clip_parts(gradients: Iterable[tuple[torch.Tensor, int]], max_norm: float, workers: Workers) -> None:
    """Scales gradients, of which each worker holds parts, down to a norm together of ``max_norm``.

    Args:
        gradients: Each with how many workers hold the same part of it.
        max_norm: Of all of them on all workers.
        workers: All of them.
    """
    parts = [(local(gradient), copies) for gradient, copies in gradients]
    squares = torch.zeros((), dtype=torch.float64, device=workers.device)
    for copies in {copies for _, copies in parts}:
        norm = nn.utils.get_total_norm([part for part, each in parts if each == copies])
        squares += norm.to(workers.device, torch.float64) ** 2 / copies
    dist.all_reduce(squares)
    factor = (max_norm / (squares.sqrt() + 1e-6)).clamp(max=1.0).float()
    by_device = {part.device for part, _ in parts}
    for device in by_device:
        there = [part for part, _ in parts if part.device == device]
        torch._foreach_mul_(there, factor.to(device))


def average(gradients: Iterable[torch.Tensor], workers: Workers) -> None:
    """Averages gradients over those workers who have samples of their own."""
    if workers.size == 1:
        return
    parts = [local(gradient) for gradient in gradients]
    sent = [dist.all_reduce(part, group=workers.group, async_op=True) for part in parts]
    for each in sent:
        assert each is not None
        each.wait()
    torch._foreach_div_(parts, float(workers.size))
