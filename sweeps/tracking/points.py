"""Which steps of a metric are recorded already."""

from __future__ import annotations

BLOCK = 1024


class StepSet:
    """A set of steps in about a bit for each: a long trial has millions of points."""

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}

    def add(self, step: int) -> bool:
        """Add ``step``; whether it is new."""
        block, bit = divmod(step, BLOCK)
        before = self._blocks.get(block, 0)
        after = before | (1 << bit)
        self._blocks[block] = after
        return after != before

    def forget_after(self, step: int) -> None:
        """Remove all steps above ``step``."""
        last, bit = divmod(step, BLOCK)
        self._blocks = {block: bits for block, bits in self._blocks.items() if block <= last}
        if last in self._blocks:
            self._blocks[last] &= (2 << bit) - 1
