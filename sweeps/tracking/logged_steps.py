"""Which steps of a metric are recorded already."""

from __future__ import annotations

from collections.abc import Mapping

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


class LoggedSteps:
    """The points of one run that are recorded, by metric."""

    def __init__(self) -> None:
        self._steps: dict[str, StepSet] | None = {}

    def take(self, step: int, metrics: Mapping[str, float]) -> dict[str, float]:
        """Those of ``metrics`` that are not recorded at ``step``, which they now count as."""
        if self._steps is None:
            return {}
        return {name: value for name, value in metrics.items() if self._steps.setdefault(name, StepSet()).add(step)}

    def go_back(self, step: int) -> None:
        """What was recorded beyond ``step`` may be recorded again."""
        for steps in (self._steps or {}).values():
            steps.forget_after(step)

    def close(self) -> None:
        """The run has ended for good: nothing is new to it."""
        self._steps = None
