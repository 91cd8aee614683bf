"""Errors that a training raises for its caller to handle."""

from __future__ import annotations


class MicroBatchHalved(RuntimeError):
    """A device ran out of memory while workers wait for each other, so this process group cannot continue.

    Restarted from its last checkpoint with micro batches of at most ``half`` samples, the training is the same.

    >>> str(MicroBatchHalved(16, 8))
    'out of memory: micro batches have 8 samples from the last checkpoint on, instead of 16'
    """

    def __init__(self, size: int, half: int):
        super().__init__(size, half)
        self.half = half
        self._size = size

    def __str__(self) -> str:
        halved = f"{self.half} samples from the last checkpoint on, instead of {self._size}"
        return f"out of memory: micro batches have {halved}"
