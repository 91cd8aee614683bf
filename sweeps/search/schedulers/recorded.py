"""Base of the schedulers that record their decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.tune.schedulers import FIFOScheduler

from sweeps.search.schedulers.decisions import DecisionLog


class RecordedScheduler(FIFOScheduler):
    """A scheduler that records each decision before Tune acts on it."""

    def __init__(self, decisions: DecisionLog | None = None):
        """
        Args:
            decisions: Decisions of earlier sessions, and where this session's are recorded; default: none, nowhere.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._decisions = decisions or DecisionLog()
        self._objective, self._sign = "", 1.0

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Tune's metric and mode; ``self._sign`` times a value is larger for a better one."""
        assert metric is not None
        self._objective, self._sign = metric, 1.0 if mode == "max" else -1.0
        return super().set_search_properties(metric, mode, **spec)

    def repeat(self, number: str | None, event: Mapping[str, Any]) -> bool | None:
        """Make a recorded decision again, after all those before it.

        Args:
            number: The trial's number; None if the decision is not about one trial.
            event: The decision.

        Returns:
            Whether it stops the trial; None if this scheduler cannot tell.
        """
        return None

    def explain(self, number: str, event: Mapping[str, Any]) -> str | None:
        """The reason for a decision about a trial that ``repeat`` is about to make again; None if there is none."""
        return None

    def debug_string(self) -> str:
        return type(self).__name__
