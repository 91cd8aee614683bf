"""Schema of strategies: how one training is spread over its workers.

Every strategy divides the workers into replicas. The workers of one replica process the same samples and together hold
one copy of the model; replicas process different samples, and average their gradients.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config.fields import STRICT, PositiveInt
from sweeps_train.config.reach import Flag


@dataclass(config=STRICT, kw_only=True)
class DDP:
    """Distributed data parallel: every worker holds the full model, and gradients are averaged while they are computed
    (Li et al., 2020, https://arxiv.org/abs/2006.15704)."""

    kind: Literal["ddp"]
    compression: Literal["none", "fp16", "bf16", "powersgd"] = "none"
    """Form in which gradients are sent: 16-bit numbers, or matrices of low rank with error feedback (PowerSGD, Vogels
    et al., 2019, https://arxiv.org/abs/1905.13727). Only with ``none`` is the training the same as on one worker."""
    powersgd_rank: PositiveInt = 2
    """Rank of PowerSGD's matrices: a higher one approximates gradients better, and sends more."""
    powersgd_start: Annotated[int, Field(ge=2)] = 100
    """Number of first steps without compression by PowerSGD, since gradients change most in these."""

    def replicas(self, num_workers: int) -> int:
        return num_workers


@dataclass(config=STRICT, kw_only=True)
class FSDP:
    """Fully sharded data parallel: weights, gradients and optimizer state are sharded over the workers and gathered one
    layer at a time (Zhao et al., 2023, https://arxiv.org/abs/2304.11277; torch's ``fully_shard``)."""

    kind: Literal["fsdp"]
    shard_size: PositiveInt | None = None
    """Workers that share one copy of the model, such as the workers of a node; gradients are averaged between the
    copies. Default: all workers."""
    reshard_after_forward: Flag = True
    """Drop a layer's gathered weights after the forward pass, and gather them again for the backward pass: less memory,
    half as much more communication."""
    activation_checkpointing: Flag = False
    """Keep only the inputs of a layer, and recompute the rest in the backward pass: less memory, about a third more
    time."""
    cpu_offload: Flag = False
    """Keep weights, gradients and optimizer in CPU memory, and run the optimizer there: for models that do not fit into
    the GPUs; slow."""

    def replicas(self, num_workers: int) -> int:
        _check_divides("strategy.shard_size", self.shard_size or num_workers, num_workers)
        return num_workers


@dataclass(config=STRICT, kw_only=True)
class TensorParallel:
    """Tensor parallel: every layer is sharded over workers that process the same samples (Shoeybi et al., 2019,
    https://arxiv.org/abs/1909.08053). For workers with a fast connection, such as those of a node."""

    kind: Literal["tensor_parallel"]
    size: PositiveInt | None = None
    """Workers that share a layer; the remaining dimension is data parallel. Default: all workers."""
    sequence_parallel: Flag = False
    """Shard the tokens between attention and perceptrons over the workers: less memory, a little more communication
    (Korthikanti et al., 2022, https://arxiv.org/abs/2205.05198)."""
    activation_checkpointing: Flag = False
    """Keep only the inputs of a layer, and recompute the rest in the backward pass."""

    def replicas(self, num_workers: int) -> int:
        return _groups("strategy.size", self.size or num_workers, num_workers)


@dataclass(config=STRICT, kw_only=True)
class FSDPTensorParallel:
    """FSDP and tensor parallel combined: layers are sharded over the workers of a node, and fully sharded over the
    nodes."""

    kind: Literal["fsdp_tensor_parallel"]
    tensor_size: PositiveInt = 2
    """Workers that share a layer and process the same samples, such as those of a node."""
    sequence_parallel: Flag = False
    """Shard the tokens between attention and perceptrons, as with ``tensor_parallel``."""
    reshard_after_forward: Flag = True
    """Drop a layer's gathered weights after the forward pass, as with ``fsdp``."""
    activation_checkpointing: Flag = False
    """Recompute activations in the backward pass, as with ``fsdp``."""
    cpu_offload: Flag = False
    """Keep weights, gradients and optimizer in CPU memory, as with ``fsdp``."""

    def replicas(self, num_workers: int) -> int:
        return _groups("strategy.tensor_size", self.tensor_size, num_workers)


@dataclass(config=STRICT, kw_only=True)
class ContextParallel:
    """Context parallel: every worker has a part of each sequence; for attention, workers exchange these for full
    sequences with a part of the heads (DeepSpeed's Ulysses, Jacobs et al., 2023, https://arxiv.org/abs/2309.14509).
    Weights are fully sharded. For sequences whose activations do not fit on one device."""

    kind: Literal["context_parallel"]
    size: PositiveInt | None = None
    """Workers that share a sequence, such as those of a node; the remaining dimension is data parallel. Default: all
    workers."""
    shard_size: PositiveInt | None = None
    """Workers that share one copy of the model, as with ``fsdp``; with 1 every worker holds the full model. Default:
    all workers."""
    reshard_after_forward: Flag = True
    """Drop a layer's gathered weights after the forward pass, as with ``fsdp``."""
    activation_checkpointing: Flag = False
    """Recompute activations in the backward pass, as with ``fsdp``."""
    cpu_offload: Flag = False
    """Keep weights, gradients and optimizer in CPU memory, as with ``fsdp``."""

    def replicas(self, num_workers: int) -> int:
        _check_divides("strategy.shard_size", self.shard_size or num_workers, num_workers)
        return _groups("strategy.size", self.size or num_workers, num_workers)


@dataclass(config=STRICT, kw_only=True)
class Pipeline:
    """Pipeline parallel: every worker holds some of the layers, and micro batches pass from one worker to the next. All
    workers are busy only if there are at least as many micro batches as stages; ``train.micro_batch_size`` can set
    this."""

    kind: Literal["pipeline"]
    stages: PositiveInt | None = None
    """Parts that the layers are divided into, one for each worker; the remaining dimension is data parallel. Default:
    the number of workers."""
    schedule: Literal["gpipe", "1f1b"] = "1f1b"
    """``gpipe``: all forward passes, then all backward passes (Huang et al., 2018,
    https://arxiv.org/abs/1811.06965); ``1f1b``: alternately, as soon as possible, which keeps the activations of at
    most as many micro batches as stages (Narayanan et al., 2019, https://arxiv.org/abs/1806.03377)."""
    activation_checkpointing: Flag = False
    """Keep only the inputs of a layer, and recompute the rest in the backward pass."""

    def replicas(self, num_workers: int) -> int:
        return _groups("strategy.stages", self.stages or num_workers, num_workers)


Strategy = Annotated[
    DDP | FSDP | TensorParallel | FSDPTensorParallel | ContextParallel | Pipeline, Field(discriminator="kind")
]


def num_stages(strategy: Strategy, num_workers: int) -> int:
    """Return the number of workers that a micro batch passes through one after another; 1 without a pipeline.

    >>> num_stages(Pipeline(kind="pipeline"), num_workers=4)
    4
    """
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
