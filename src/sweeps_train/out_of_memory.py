"""What a training says when a device has run out of memory where workers wait for each other."""

from __future__ import annotations


class MicroBatchHalved(RuntimeError):
    """The training cannot go on in this process group; begun again from its last checkpoint with micro batches of at
    most ``half`` samples, it is the same."""

    def __init__(self, size: int, half: int):
        super().__init__(size, half)
        self.half = half
        self._size = size

    def __str__(self) -> str:
        halved = f"{self.half} samples from the last checkpoint on, instead of {self._size}"
        return f"out of memory: micro batches have {halved}"
