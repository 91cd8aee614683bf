"""Checks the switches for TF32, deterministic algorithms and the allocator, against each other and the workers."""

from __future__ import annotations

import os

from sweeps.config import SweepConfig
from sweeps.errors import ConfigError
from sweeps_train.config.process import process_environment


def check_numerics(config: SweepConfig) -> None:
    """Check the numerics switches of one config.

    Raises:
        ConfigError: A switch cannot have an effect, or contradicts another setting.
    """
    train = config.loop
    if train is None:
        return
    if config.scaling.use_gpu is False:
        for name in ("tf32", "expandable_segments"):
            if getattr(train, name):
                raise ConfigError(
                    f"train.{name}=true: is for GPUs, and scaling.use_gpu=false; leave one of them at its default"
                )
    if train.deterministic and train.max_communication_share is not None:
        raise ConfigError(
            f"train.deterministic=true: train.max_communication_share={train.max_communication_share} chooses the "
            "batch by measured times, which differ from run to run; set it and train.max_global_batch_size to null"
        )
    try:
        process_environment(train, os.environ)
    except ValueError as error:
        raise ConfigError(str(error)) from None
