"""Gradient accumulation: division of a global batch into the micro batches of workers."""

from __future__ import annotations

from sweeps_train.config.train import Train


def check_batch_split(train: Train, replicas: int, stages: int = 1) -> tuple[int, int]:
    """Return a worker's micro batch size, the samples of a forward pass, and the number of accumulation steps.

    Args:
        train: Sizes of the global batch and the micro batch.
        replicas: Number of model replicas, which have different samples: ``strategy.replicas(num_workers)``.
        stages: Number of pipeline stages. Without a ``micro_batch_size`` there are ``MICRO_BATCHES_A_STAGE`` micro
            batches for each, if the batch is large enough.

    Raises:
        ValueError: The batch cannot be divided exactly; the message names the sizes that can.

    Example:
        >>> check_batch_split(Train(max_steps=1, global_batch_size=32, micro_batch_size=4), replicas=2)
        (4, 4)
    """
    share, remainder = divmod(train.global_batch_size, replicas)
    workers = f"{replicas} workers that have samples of their own"
    if remainder:
        below = share * replicas
        fits = [size for size in (below, below + replicas) if size > 0]
        raise ValueError(
            f"train.global_batch_size={train.global_batch_size} cannot be split over {workers}; "
            f"use {' or '.join(map(str, fits))}"
        )
    default = share if stages == 1 else largest_micro_batch_for(min(share, MICRO_BATCHES_A_STAGE * stages), share)
    micro = train.micro_batch_size if isinstance(train.micro_batch_size, int) else default
    if share % micro:
        fits = [size for size in range(1, share + 1) if share % size == 0]
        raise ValueError(
            f"train.micro_batch_size={micro} does not divide the {share} samples that each of {workers} "
            f"has of train.global_batch_size={train.global_batch_size}; use one of {fits}"
        )
    return micro, share // micro


MICRO_BATCHES_A_STAGE = 4
"""Micro batches of a pipeline per stage; with four, workers wait for at most a fifth of a step (GPipe, Huang et al.,
2018)."""


def largest_micro_batch_for(stages: int, share: int) -> int:
    """Return the largest micro batch size with which all stages of a pipeline work at the same time; 1 if there is
    none.

    >>> largest_micro_batch_for(stages=4, share=24)
    6
    """
    return max(1, *(size for size in range(1, share + 1) if share % size == 0 and share // size >= stages))
