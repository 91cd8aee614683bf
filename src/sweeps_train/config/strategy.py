"""How one training spreads over its workers.

Every strategy splits them into replicas: workers of one replica see the same samples and hold its model together;
replicas have samples of their own, and average their gradients.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config.fields import STRICT, PositiveInt
from sweeps_train.config.reach import Flag


@dataclass(config=STRICT, kw_only=True)
class DDP:
    """Distributed data parallel: every worker holds the whole model, gradients are averaged while they are computed
    (Li et al., 2020, https://arxiv.org/abs/2006.15704)."""

    kind: Literal["ddp"]
    compression: Literal["none", "fp16", "bf16", "powersgd"] = "none"
    """What gradients are sent as: halves of 16 bits, or matrices of low rank with the error fed back
    (PowerSGD, Vogels et al., 2019, https://arxiv.org/abs/1905.13727). Only with ``none`` is the training the same as
    on one worker."""
    powersgd_rank: PositiveInt = 2
    """Rank of PowerSGD's matrices: more is nearer to the gradient, and more to send."""
    powersgd_start: Annotated[int, Field(ge=2)] = 100
    """Steps that PowerSGD leaves uncompressed: the gradient changes the most in the first."""

    def replicas(self, num_workers: int) -> int:
        return num_workers


@dataclass(config=STRICT, kw_only=True)
class FSDP:
    """Fully sharded data parallel: weights, gradients and optimizer are cut over the workers, and put together one
    layer at a time (Zhao et al., 2023, https://arxiv.org/abs/2304.11277; torch's ``fully_shard``)."""

    kind: Literal["fsdp"]
    shard_size: PositiveInt | None = None
    """Workers that share one copy of the model, such as those of a node; between such groups gradients are averaged.
    Default: all workers."""
    reshard_after_forward: Flag = True
    """Drop a layer's weights after the forward pass, and gather them again for the backward pass: less memory, half as
    much again to send."""
    activation_checkpointing: Flag = False
    """Keep only the inputs of a layer, and compute the rest again in the backward pass: less memory, about a third more
    time."""
    cpu_offload: Flag = False
    """Keep weights, gradients and optimizer in the memory of the CPU, and there make the step: models that no GPU
    holds, slowly."""

    def replicas(self, num_workers: int) -> int:
        _check_divides("strategy.shard_size", self.shard_size or num_workers, num_workers)
        return num_workers


@dataclass(config=STRICT, kw_only=True)
class TensorParallel:
    """Tensor parallel: every layer is cut over the workers, who see the same samples (Shoeybi et al., 2019,
    https://arxiv.org/abs/1909.08053). For workers with a fast connection, as within a node."""

    kind: Literal["tensor_parallel"]
    size: PositiveInt | None = None
    """Workers that cut a layer among them; what remains is data parallel. Default: all workers."""
    sequence_parallel: Flag = False
    """Between attention and perceptrons each worker has a part of the tokens: less memory, a little more to send
    (Korthikanti et al., 2022, https://arxiv.org/abs/2205.05198)."""
    activation_checkpointing: Flag = False
    """Keep only the inputs of a layer, and compute the rest again in the backward pass."""

    def replicas(self, num_workers: int) -> int:
        return _groups("strategy.size", self.size or num_workers, num_workers)


@dataclass(config=STRICT, kw_only=True)
class FSDPTensorParallel:
    """Both: layers are cut over the workers of a node, and fully sharded over the nodes."""

    kind: Literal["fsdp_tensor_parallel"]
    tensor_size: PositiveInt = 2
    """Workers that cut a layer among them, such as those of a node; they see the same samples."""
    sequence_parallel: Flag = False
    """As in ``tensor_parallel``."""
    reshard_after_forward: Flag = True
    """As in ``fsdp``."""
    activation_checkpointing: Flag = False
    """As in ``fsdp``."""
    cpu_offload: Flag = False
    """As in ``fsdp``."""

    def replicas(self, num_workers: int) -> int:
        return _groups("strategy.tensor_size", self.tensor_size, num_workers)


@dataclass(config=STRICT, kw_only=True)
class ContextParallel:
    """Context parallel: every worker has a part of each sequence, and for attention exchanges it for all of the
    sequence with a part of the heads (DeepSpeed's Ulysses, Jacobs et al., 2023, https://arxiv.org/abs/2309.14509).
    Weights are fully sharded. For sequences whose activations no device holds."""

    kind: Literal["context_parallel"]
    size: PositiveInt | None = None
    """Workers that share a sequence, such as those of a node; what remains is data parallel. Default: all workers."""
    shard_size: PositiveInt | None = None
    """As in ``fsdp``; 1 lets every worker hold the whole model. Default: all workers."""
    reshard_after_forward: Flag = True
    """As in ``fsdp``."""
    activation_checkpointing: Flag = False
    """As in ``fsdp``."""
    cpu_offload: Flag = False
    """As in ``fsdp``."""

    def replicas(self, num_workers: int) -> int:
        _check_divides("strategy.shard_size", self.shard_size or num_workers, num_workers)
        return _groups("strategy.size", self.size or num_workers, num_workers)


@dataclass(config=STRICT, kw_only=True)
class Pipeline:
    """Pipeline parallel: every worker holds some of the layers, and micro batches go from one to the next. Each worker
    has something to do only if there are as many micro batches as stages: ``train.micro_batch_size`` can set it."""

    kind: Literal["pipeline"]
    stages: PositiveInt | None = None
    """Parts that the layers are cut into, one a worker; what remains is data parallel. Default: as many as workers."""
    schedule: Literal["gpipe", "1f1b"] = "1f1b"
    """``gpipe``: all forward passes, then all backward passes (Huang et al., 2018, https://arxiv.org/abs/1811.06965);
    ``1f1b``: in turns as soon as possible, which keeps the activations of at most as many micro batches as stages
    (Narayanan et al., 2019, https://arxiv.org/abs/1806.03377)."""
    activation_checkpointing: Flag = False
    """Keep only the inputs of a layer, and compute the rest again in the backward pass."""

    def replicas(self, num_workers: int) -> int:
        return _groups("strategy.stages", self.stages or num_workers, num_workers)


Strategy = Annotated[
    DDP | FSDP | TensorParallel | FSDPTensorParallel | ContextParallel | Pipeline, Field(discriminator="kind")
]


def num_stages(strategy: Strategy, num_workers: int) -> int:
    """Workers that a micro batch passes through one after another; 1 without a pipeline."""
    return (strategy.stages or num_workers) if isinstance(strategy, Pipeline) else 1


def _groups(key: str, size: int, num_workers: int) -> int:
    _check_divides(key, size, num_workers)
    return num_workers // size


def _check_divides(key: str, size: int, num_workers: int) -> None:
    if num_workers % size:
        fits = [each for each in range(1, num_workers + 1) if num_workers % each == 0]
        raise ValueError(
            f"{key}={size} does not divide scaling.num_workers={num_workers}; use one of {fits}, "
            f"or a number of workers that {size} divides"
        )
