"""Strategies: how one training spreads over its workers."""

from __future__ import annotations

from sweeps_train.config import Strategy as StrategyConfig
from sweeps_train.config.strategy import DDP, FSDP, ContextParallel, FSDPTensorParallel, TensorParallel
from sweeps_train.distributed import Workers
from sweeps_train.precision import Precision
from sweeps_train.strategies.strategy import Strategy

__all__ = ["Strategy", "build_strategy"]


def build_strategy(config: StrategyConfig, workers: Workers, precision: Precision) -> Strategy:
    """
    Args:
        config: Which one, and how.
        workers: All of the training; every worker must call it.
        precision: Of the forward pass.

    Raises:
        ValueError: The workers cannot be split so; the message names the key and the fix.
    """
    config.replicas(workers.size)
    if workers.size == 1:
        alone = Strategy(workers, precision)
        alone.recomputes = not isinstance(config, DDP) and config.activation_checkpointing
        return alone
    if isinstance(config, DDP):
        from sweeps_train.strategies.ddp import DistributedDataParallelStrategy

        return DistributedDataParallelStrategy(config, workers, precision)
    if isinstance(config, FSDP):
        from sweeps_train.strategies.fsdp import FullyShardedStrategy

        return FullyShardedStrategy(config, workers, precision)
    if isinstance(config, TensorParallel | FSDPTensorParallel):
        from sweeps_train.strategies.tensor_parallel import TensorParallelStrategy

        return TensorParallelStrategy(config, workers, precision)
    if isinstance(config, ContextParallel):
        from sweeps_train.strategies.context_parallel import ContextParallelStrategy

        return ContextParallelStrategy(config, workers, precision)
    from sweeps_train.strategies.pipeline import PipelineStrategy

    return PipelineStrategy(config, workers, precision)
