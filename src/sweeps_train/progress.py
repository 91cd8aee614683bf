"""How far a training is, in every unit by which a search may compare or stop trainings."""

from __future__ import annotations

from dataclasses import asdict, dataclass


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
