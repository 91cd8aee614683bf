"""A reporter whose errors end one lane on all workers, without ending its group."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from sweeps_train.reports.progress import Progress
from sweeps_train.reports.reporter import Reporter, Stop

P = ParamSpec("P")
T = TypeVar("T")


class GuardedReporter:
    """Reporter that forwards all calls until one fails, and from then on asks all workers to stop."""

    def __init__(self, reporter: Reporter):
        self._reporter = reporter
        self.error: Exception | None = None

    @property
    def waits_for_decision(self) -> bool:
        return self._reporter.waits_for_decision

    def log(self, progress: Progress, metrics: dict[str, float]) -> None:
        self._pass_on(self._reporter.log, progress, metrics)

    def report(self, progress: Progress, metrics: dict[str, float], checkpoint: str | None, done: bool) -> None:
        self._pass_on(self._reporter.report, progress, metrics, checkpoint, done)

    def checkpoint(self, progress: Progress, metrics: dict[str, float], checkpoint: str) -> None:
        self._pass_on(self._reporter.checkpoint, progress, metrics, checkpoint)

    def note(self, text: str) -> None:
        self._pass_on(self._reporter.note, text)

    def should_stop(self, *, can_save: bool = True) -> Stop:
        answer = self._pass_on(self._reporter.should_stop, can_save=can_save)
        return Stop.DISCARD if answer is None else answer

    def _pass_on(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Call the reporter and return its result; None if this call or an earlier one has failed."""
        if self.error is None:
            try:
                return call(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - told by the group
                self.error = error
        return None
