"""Distributed data parallel: every worker holds the whole model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from sweeps_train.config.strategy import DDP
from sweeps_train.data.sampler import Batch
from sweeps_train.distributed import Workers
from sweeps_train.precision import Precision
from sweeps_train.strategies.strategy import Strategy


class DistributedDataParallelStrategy(Strategy):
    """Gradients are averaged while the backward pass still goes on."""

    model: DistributedDataParallel

    def __init__(self, config: DDP, workers: Workers, precision: Precision):
        super().__init__(workers, precision)
        self._config = config
        self._leaves_some_out = False
        """There were steps in which a worker's loss used only a part of what is trained."""

    def _wrap(self, model: nn.Module) -> nn.Module:
        """Starts all workers from rank 0's weights. Frozen ones are left alone, since every worker has read them from
        the same files: the workers of a node share the mapped pages until somebody writes to them."""
        # DistributedDataParallel has no public way to say it.
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call] # noqa: SLF001
            model, self.task.frozen
        )
        device = self.workers.device
        # torch's PowerSGD sends of several pieces at once what comes first, which may differ between workers.
        in_one = sum(each.numel() * each.element_size() for each in model.parameters()) // 2**20 + 1
        wrapped = DistributedDataParallel(
            model,
            device_ids=[device] if device.type == "cuda" else None,
            bucket_cap_mb=in_one if self._config.compression == "powersgd" else None,
            gradient_as_bucket_view=True,  # what is received is used where it lies
        )
        # As within no_sync, and for the last forward pass, too: DistributedDataParallel would take it for the promise
        # of a backward pass, which a worker that runs out of memory cannot keep.
        wrapped.require_backward_grad_sync = False
        compress(wrapped, self._config)
        return wrapped

    def backward(self, batches: Iterable[Batch], count: int, scale: float) -> torch.Tensor:
        self.may_repeat = True
        total = super().backward(batches, count, scale)
        self.model.require_forward_param_sync = True  # buffers, in the first forward pass of the next step
        return total

    @property
    def _averages_itself(self) -> bool:
        # DistributedDataParallel waits for every parameter, and would average nothing of a bucket that lacks one.
        return (self.careful or self._leaves_some_out) and self._config.compression == "none"

    def _before_last_backward(self) -> None:
        if not self._averages_itself:
            self.may_repeat = False
            # What DistributedDataParallel does at the end of a forward pass that is to be followed by an exchange.
            self.model.reducer.prepare_for_backward([])

    def _after_last_backward(self) -> None:
        trained = self.parameters
        unused = [name for name, each in trained.items() if each.grad is None]
        if not self._averages_itself:
            if self.careful and unused:
                raise ValueError(
                    f"strategy.compression={self._config.compression} wants a loss that uses all that is trained, and "
                    f"{', '.join(unused)} had no part in it; set requires_grad=False there, or use "
                    "strategy.compression=none"
                )
            return
        used = torch.tensor([each.grad is not None for each in trained.values()], dtype=torch.int32)
        used = used.to(self.workers.device)
        dist.all_reduce(used)
        users = dict(zip(trained, used.tolist(), strict=True))
        self._leaves_some_out |= min(users.values()) < self.workers.size
        for name in unused:
            if users[name]:
                trained[name].grad = torch.zeros_like(trained[name])
        average_together([each.grad for each in trained.values() if each.grad is not None], self.workers.size)

    def forget(self) -> None:
        super().forget()
        self.model.require_forward_param_sync = False  # this step's buffers have been sent


@torch.no_grad()
def average_together(gradients: Sequence[torch.Tensor], num_workers: int) -> None:
    """Averages gradients as DistributedDataParallel does, to the last bit, but all at once."""
    for kind in sorted({gradient.dtype for gradient in gradients}, key=str):  # the same order on all workers
        some = [gradient for gradient in gradients if gradient.dtype == kind]
        torch._foreach_mul_(some, 1 / num_workers)
        together = torch.cat([gradient.flatten() for gradient in some])
        dist.all_reduce(together)
        sizes = [gradient.numel() for gradient in some]
        for gradient, averaged in zip(some, torch.split(together, sizes), strict=True):
            gradient.copy_(averaged.view_as(gradient))


def compress(model: DistributedDataParallel, config: DDP) -> None:
    """What gradients are sent as."""
    if config.compression == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            process_group=None,
            matrix_approximation_rank=config.powersgd_rank,
            start_powerSGD_iter=config.powersgd_start,
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif config.compression != "none":
        # By the name of its own hook torch refuses bf16 without NCCL, though gloo adds up such numbers.
        bf16: Any = lambda group, bucket: default_hooks.bf16_compress_hook(group, bucket)  # noqa: E731, PLW0108
        hooks = {"fp16": default_hooks.fp16_compress_hook, "bf16": bf16}
        model.register_comm_hook(None, hooks[config.compression])
