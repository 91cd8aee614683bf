"""Position of a training, in every unit by which a search may compare or stop trials."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from sweeps_train.config import Train


@dataclass(frozen=True)
class Progress:
    """Totals over all attempts at one training, carried over by its checkpoints."""

    step: int = 0
    """Optimizer steps."""
    epochs: float = 0.0
    """Passes over the training data."""
    samples: int = 0
    """Samples consumed by all workers: the position in the order of the data."""
    tokens: int | None = None
    """Tokens processed, without padding; None for a task without tokens."""
    seconds: float = 0.0
    """Time spent on optimizer steps, without evaluations, checkpoints and starts."""
    batch_factor: int = 1
    """Factor of ``train.global_batch_size``, chosen when the training begins and constant afterwards."""
    left_out: int = 0
    """Samples of discarded steps: when the training diverged, it went back to a checkpoint."""

    def resources(self) -> dict[str, float]:
        """Return the amounts by which a scheduler may stop a training.

        >>> Progress(step=10, epochs=0.5, samples=320).resources()
        {'steps': 10, 'epochs': 0.5, 'samples': 320, 'seconds': 0.0}
        """
        named = {"steps" if name == "step" else name: value for name, value in asdict(self).items()}
        return {name: value for name, value in named.items() if value is not None and name not in _INTERNAL}


_INTERNAL = ("batch_factor", "left_out")


def check_enough_samples(config: Train, num_samples: int) -> None:
    """Raise ``ValueError`` if the global batch is larger than the training data."""
    if config.global_batch_size > num_samples:
        raise ValueError(
            f"train.global_batch_size={config.global_batch_size} is more than the {num_samples} training samples; "
            f"use at most {num_samples}, or more data"
        )


def count_steps(config: Train, num_samples: int, global_batch_size: int, done: Progress) -> int:
    """Return the number of optimizer steps of the whole training, of which some may be done, even with batches of
    another size.

    >>> count_steps(Train(epochs=1.5), num_samples=1000, global_batch_size=100, done=Progress(step=10, samples=500))
    20
    """
    if config.max_steps is not None:
        return config.max_steps
    assert config.epochs is not None
    left = (config.epochs * num_samples - (done.samples - done.left_out)) / global_batch_size
    return done.step + max(0, math.ceil(round(left, 6)))  # 1.1 * 50,000 is a little above 55,000
