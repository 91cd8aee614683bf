"""Distributed data parallel: every worker holds the full model."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sweeps_train.compat.late_compiler import wrap
from sweeps_train.compat.torch import (
    exchange_buffers,
    ignore_parameters,
    prepare_gradient_sync,
    sync_only_on_request,
)
from sweeps_train.config.strategy import DDP
from sweeps_train.devices.device_operations import is_accelerator
from sweeps_train.steps.precision import Precision
from sweeps_train.strategies.all_reduce import average_gradients
from sweeps_train.strategies.strategy import Capabilities, Strategy, trained_parameters
from sweeps_train.workers.distributed import Workers


class DistributedDataParallelStrategy(Strategy):
    """Data parallelism that averages gradients over all workers while the backward pass is still running."""

    model: DistributedDataParallel

    def __init__(self, config: DDP, workers: Workers, precision: Precision):
        super().__init__(workers, precision, Capabilities(random_stream=workers.rank, can_retry_oom=True))
        self._config = config
        self._has_unused = False
        """Whether in an earlier step the loss of some worker did not use all trained parameters."""
        self._has_exchanged_buffers = False
        """Whether this worker has received the buffers of the current step."""
        self._reached: set[torch.Tensor] = set()
        """Parameters that the last backward pass of a step has reached, of a model that may leave some out."""

    def _wrap(self, model: nn.Module) -> nn.Module:
        # All workers have read the frozen weights from the same files. Left alone, they stay mapped pages that the
        # workers of a node share.
        ignore_parameters(model, self.task.frozen)
        device = self.workers.device
        # One bucket for all gradients: torch's PowerSGD sends several in the order in which they are ready, which may
        # differ between workers.
        model_mib = sum(each.numel() * each.element_size() for each in model.parameters()) // 2**20 + 1
        wrapped = wrap(
            model,
            device_ids=[device] if is_accelerator(device) else None,
            bucket_cap_mb=model_mib if self._config.compression == "powersgd" else None,
            gradient_as_bucket_view=True,  # gradients are used in the buffer that receives them
        )
        sync_only_on_request(wrapped)
        compress(wrapped, self._config)
        if not self.task.repeats_its_passes:
            for each in trained_parameters(model).values():
                each.register_post_accumulate_grad_hook(self._reached.add)  # type: ignore[no-untyped-call]
        return wrapped

    def _before_micro_batch(self, *, is_last: bool) -> None:
        if not self._has_exchanged_buffers:  # not again when it repeats the step alone
            self.grad_sync_started = True  # others wait for this worker
            exchange_buffers(self.model)
            self.grad_sync_started, self._has_exchanged_buffers = False, True

    @property
    def _averages_itself(self) -> bool:
        # DistributedDataParallel waits for every parameter, and would average nothing of a bucket that lacks one.
        return (self._defers_grad_sync or self._has_unused) and self._config.compression == "none"

    def _before_last_backward(self) -> None:
        self._reached.clear()
        if not self._averages_itself:
            self.grad_sync_started = True
            prepare_gradient_sync(self.model)

    def _after_last_backward(self) -> None:
        if self._averages_itself:
            self.grad_sync_started = True  # from here on others wait for this worker in collectives
            self._has_unused |= not average_gradients([*self.parameters.values()], self.workers.size)
        else:
            self._complete_gradient_sync()
        self._has_exchanged_buffers = False

    def _complete_gradient_sync(self) -> None:
        """Send zeros for parameters that the last backward pass of a step has left out: other workers wait for this
        one's part of all gradients."""
        unused = [name for name, each in self.parameters.items() if each.grad is None]
        if unused and self._defers_grad_sync:
            raise ValueError(
                f"strategy.compression={self._config.compression} needs a loss that uses all trained "
                f"parameters, but it does not use {', '.join(unused)}; set requires_grad=False for them, or use "
                "strategy.compression=none"
            )
        may_leave_out = not self.task.repeats_its_passes
        left_out = [
            each
            for each in self.parameters.values()
            if each.grad is None or (may_leave_out and each not in self._reached)
        ]
        if left_out:
            torch.autograd.backward(left_out, [torch.zeros_like(each) for each in left_out])


def compress(model: DistributedDataParallel, config: DDP) -> None:
    """Register the communication hook that compresses gradients, if the config asks for one."""
    if config.compression == "none":
        return
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook  # take a second to import

    if config.compression == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            process_group=None,
            matrix_approximation_rank=config.powersgd_rank,
            start_powerSGD_iter=config.powersgd_start,
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    else:
        # torch recognises its own bf16 hook by name and refuses it without NCCL, although gloo can add bf16 numbers.
        bf16: Any = lambda group, bucket: default_hooks.bf16_compress_hook(group, bucket)  # noqa: E731, PLW0108
        hooks = {"fp16": default_hooks.fp16_compress_hook, "bf16": bf16}
        model.register_comm_hook(None, hooks[config.compression])
