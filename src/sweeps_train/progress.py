"""How far a training is and goes, in every unit by which a search may compare or stop trainings."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from sweeps_train.config import Train


@dataclass(frozen=True)
class Progress:
    """Sums over all attempts at one training: a resumed one goes on from its checkpoint's."""

    step: int = 0
    """Optimizer steps done."""
    epochs: float = 0.0
    """Passes over the training data."""
    samples: int = 0
    """Samples consumed by all workers: the position in the order of the data."""
    tokens: int | None = None
    """Tokens, without padding, that have gone through the model; None for a task without tokens."""
    seconds: float = 0.0
    """Time spent on optimizer steps, without evaluations, checkpoints and starts."""
    batch_factor: int = 1
    """How many times ``train.global_batch_size`` a step takes; chosen when the training begins, and kept."""

    def resources(self) -> dict[str, float]:
        """``steps, epochs, samples, tokens, seconds``, as far as the task has them."""
        named = {"steps" if name == "step" else name: value for name, value in asdict(self).items()}
        del named["batch_factor"]
        return {name: value for name, value in named.items() if value is not None}


def check_enough(config: Train, num_samples: int) -> None:
    """
    Raises:
        ValueError: A step takes more samples than there are.
    """
    if config.global_batch_size > num_samples:
        raise ValueError(
            f"train.global_batch_size={config.global_batch_size} is more than the {num_samples} training samples; "
            f"use at most {num_samples}, or more data"
        )


def count_steps(config: Train, num_samples: int, global_batch_size: int) -> int:
    """Optimizer steps of the whole training."""
    if config.max_steps is not None:
        return config.max_steps
    assert config.epochs is not None
    return math.ceil(config.epochs * num_samples / global_batch_size)
