"""Distributed data parallel: every worker holds the whole model."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from sweeps_train.config.strategy import DDP
from sweeps_train.precision import Precision
from sweeps_train.strategies.strategy import Strategy
from sweeps_train.workers import Workers


class DistributedDataParallelStrategy(Strategy):
    """Gradients are averaged while the backward pass still goes on."""

    model: DistributedDataParallel

    def __init__(self, config: DDP, workers: Workers, precision: Precision):
        super().__init__(workers, precision)
        self._config = config

    def _wrap(self, model: nn.Module) -> nn.Module:
        """Starts all workers from rank 0's weights. Frozen ones are left alone, since every worker has read them from
        the same files: the workers of a node share the mapped pages until somebody writes to them."""
        # DistributedDataParallel has no public way to say it.
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call] # noqa: SLF001
            model, self.task.frozen
        )
        device = self.workers.device
        wrapped = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
        compress(wrapped, self._config)
        return wrapped

    def _accumulating(self, *, is_last: bool) -> AbstractContextManager[None]:
        if is_last:
            return nullcontext()
        context: AbstractContextManager[None] = self.model.no_sync()
        return context


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
        hooks = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}
        model.register_comm_hook(None, hooks[config.compression])
