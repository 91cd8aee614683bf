"""A reporter that keeps the last metrics of our loop."""

from __future__ import annotations

from sweeps_train.reports.progress import Progress
from sweeps_train.reports.reporter import SilentReporter

UTILIZATION, SPEED = "train/flop_utilization", "train/tokens_per_second"


class LastMetrics(SilentReporter):
    """Keeps what was logged last."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def log(self, progress: Progress, metrics: dict[str, float]) -> None:
        self._last = metrics

    def of_interest(self) -> dict[str, float]:
        """The loss; and the FLOP utilisation of one token a second, from which that of any arm follows by its speed."""
        found = {"loss": self._last["train/loss"]} if "train/loss" in self._last else {}
        if UTILIZATION in self._last:
            found["utilization_per_speed"] = self._last[UTILIZATION] / self._last[SPEED]
        return found
