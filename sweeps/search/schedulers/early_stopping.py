"""Base of the schedulers that compare a report with earlier ones and stop the trial if it is worse."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from sweeps.constants import TRIAL
from sweeps.search.schedulers.decisions import BROKEN, STOPS, STOPS_IF_LONGER, DecisionLog
from sweeps.search.schedulers.recorded import RecordedScheduler


class EarlyStoppingScheduler(RecordedScheduler, ABC):
    """Stops a trial whose report is worse than a comparison demands.

    From ``grace`` on, NaN or an infinitely bad value stops a trial as well; others are not compared with it.
    """

    def __init__(self, resource: str, grace: float, decisions: DecisionLog | None = None):
        """
        Args:
            resource: Key of the result that progress is counted in.
            grace: Progress before which no trial is stopped.
            decisions: As in ``RecordedScheduler``.
        """
        super().__init__(decisions)
        self._resource, self._grace = resource, grace

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        accepted = super().set_search_properties(metric, mode, **spec)
        for number, event in self._decisions.events:
            assert number is not None
            if BROKEN in event:
                self.forget(number)
            else:
                self.replay(number, event)
        return accepted

    @abstractmethod
    def event(self, reached: float, value: float) -> dict[str, Any]:
        """Document that records a report.

        Args:
            reached: The resource.
            value: The metric; neither NaN nor infinitely bad.
        """

    @abstractmethod
    def compare(self, number: str, event: Mapping[str, Any]) -> bool | None:
        """Add a report to those that later ones are compared with.

        Args:
            number: The trial's number.
            event: The report, as ``event`` returned it.

        Returns:
            Whether the report is worse than those before it demand; None if it is not one to compare.
        """

    @abstractmethod
    def forget(self, number: str) -> None:
        """Exclude the reports of a trial that broke a limit from later comparisons: it may be better than all trials
        that keep it."""

    def replay(self, number: str, event: Mapping[str, Any]) -> None:
        """Add a report of an earlier session."""
        self.compare(number, event)

    def repeat(self, number: str | None, event: Mapping[str, Any]) -> bool | None:
        assert number is not None
        if BROKEN in event:
            self.forget(number)
            return True
        return bool(self.compare(number, event))

    def explain(self, number: str, event: Mapping[str, Any]) -> str | None:
        return str(event[BROKEN]) if BROKEN in event else self.reason(number, event)

    @abstractmethod
    def reason(self, number: str, event: Mapping[str, Any]) -> str | None:
        """The reason for what a comparison decides; None if it is not one."""

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        self._decisions.record_report(trial, result)
        if (broken := self._decisions.violation(result)) is not None:  # it cannot be the best any more
            self.forget(trial.config[TRIAL])
            self._decisions.record(trial.config[TRIAL], {BROKEN: broken, STOPS: True})
            return TrialScheduler.STOP
        if self._has_diverged(result):
            is_late = result.get(self._resource, 0.0) >= self._grace
            return TrialScheduler.STOP if is_late else TrialScheduler.CONTINUE
        return TrialScheduler.STOP if self._is_worse(trial, result) else TrialScheduler.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Compare the last report too, and record whether it would stop the trial if it is extended later."""
        if not self._has_diverged(result) and self._decisions.violation(result) is None:
            self._is_worse(trial, result, STOPS_IF_LONGER)

    def _has_diverged(self, result: Mapping[str, Any]) -> bool:
        """Whether the value is NaN or infinitely bad."""
        value = self._sign * result.get(self._objective, 0.0)
        return math.isnan(value) or value == -math.inf

    def _is_worse(self, trial: Trial, result: dict[str, Any], consequence: str = STOPS) -> bool:
        if self._resource not in result or self._objective not in result:
            return False
        number, event = trial.config[TRIAL], self.event(result[self._resource], result[self._objective])
        is_worse = self.compare(number, event)
        if is_worse is None:
            return False
        self._decisions.record(number, {**event, consequence: is_worse})
        return is_worse
