"""Builds the configured strategy: how one training is spread over its workers."""

from __future__ import annotations

from sweeps_train.config import Strategy as StrategyConfig
from sweeps_train.config.strategy import DDP, FSDP, ContextParallel, FSDPTensorParallel, TensorParallel
from sweeps_train.steps.precision import Precision
from sweeps_train.strategies.strategy import Capabilities, Strategy
from sweeps_train.workers.distributed import Workers


def build_strategy(config: StrategyConfig, workers: Workers, precision: Precision) -> Strategy:
    """Build the configured strategy; every worker must call it.

    Raises:
        ValueError: The workers cannot be divided as configured; the message names the key and the fix.
    """
    config.replicas(workers.size)
    if workers.size == 1:
        checkpoints = not isinstance(config, DDP) and config.activation_checkpointing
        alone = Capabilities(random_stream=0, can_retry_oom=True, activation_checkpointing=checkpoints)
        return Strategy(workers, precision, alone)
    if isinstance(config, DDP):
        from sweeps_train.strategies.ddp import DistributedDataParallelStrategy

        return DistributedDataParallelStrategy(config, workers, precision)
    if precision.scaler.is_enabled():
        raise ValueError(
            f"train.precision=fp16 cannot be combined with strategy.kind={config.kind}: gradients that overflow on "
            "one worker must be skipped by all; use bf16, fp32, or strategy.kind=ddp"
        )
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
