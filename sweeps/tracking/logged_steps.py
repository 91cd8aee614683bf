"""Record of the steps at which a run's metrics were already recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

BLOCK = 1024


class StepSet:
    """Set of steps that needs about one bit per step, because a long trial has millions of steps."""

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}

    def add(self, step: int) -> bool:
        """Add a step; return whether it is new."""
        block, bit = divmod(step, BLOCK)
        before = self._blocks.get(block, 0)
        after = before | (1 << bit)
        self._blocks[block] = after
        return after != before

    def forget_after(self, step: int) -> None:
        """Remove all steps after the given one."""
        last, bit = divmod(step, BLOCK)
        self._blocks = {block: bits for block, bits in self._blocks.items() if block <= last}
        if last in self._blocks:
            self._blocks[last] &= (2 << bit) - 1

    def forget_until(self, step: int) -> None:
        """Remove all steps up to and including the given one."""
        first, bit = divmod(step, BLOCK)
        self._blocks = {block: bits for block, bits in self._blocks.items() if block >= first}
        if first in self._blocks:
            self._blocks[first] &= -(2 << bit)


class LoggedSteps:
    """The recorded steps of one run, by metric."""

    def __init__(self) -> None:
        self._steps: defaultdict[str, StepSet] | None = defaultdict(StepSet)

    def take(self, step: int, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics that are not recorded at this step yet, and mark them as recorded."""
        if self._steps is None:
            return {}
        return {name: value for name, value in metrics.items() if self._steps[name].add(step)}

    def go_back(self, step: int) -> None:
        """Allow all steps after the given one to be recorded again."""
        for steps in (self._steps or {}).values():
            steps.forget_after(step)

    def begin_anew(self, step: int) -> None:
        """Allow all steps up to and including the given one to be recorded again."""
        for steps in (self._steps or {}).values():
            steps.forget_until(step)

    def close(self) -> None:
        """Treat every step as recorded from now on, because the run has ended and will not be resumed."""
        self._steps = None
