"""Turns the records of a program into reports: renames metrics, finds steps, and selects the reports that the search
judges."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sweeps_train.command.output import Record
from sweeps_train.reports.reported_metrics import as_step

STEP_NAMES = ("step", "global_step", "training_iteration")
"""Names by which programs print the step."""


@dataclass(frozen=True)
class Measured:
    """Metrics that a program has printed at a step."""

    step: int
    metrics: dict[str, float]
    is_report: bool
    """Whether all metrics of the search are present, so that the trial can be judged."""
    time: float = field(default_factory=time.time)
    """Unix time at which the metrics were read."""


class Measurements:
    """Processes a program's records one after another."""

    def __init__(
        self,
        *,
        objectives: Sequence[str],
        limited: Sequence[str] = (),
        rename: Mapping[str, str] | None = None,
        step: str | None = None,
        done: int | None = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """
        Args:
            objectives: Metrics of the search, by their names in the search.
            limited: Metrics on which the search has limits.
            rename: Names in the search by the program's names.
            step: The program's name of the metric with the step; default: see ``STEP_NAMES``.
            done: Step of the last report, at which the program continues; None if there was none.
            note: Tells the user something.
        """
        self._objectives, self._limited = list(objectives), list(limited)
        self._rename, self._step_name = dict(rename or {}), step
        self._note = note
        self.step = self._reported = done or 0
        """Step of the last record, and of the last report."""
        self._has_reported = self._has_noted = False
        self._latest: dict[str, float] = {}
        """Latest values of the objectives and limited metrics; a report contains all of them."""
        self._fresh: set[str] = set()
        """Objectives that have arrived since the last report."""
        self._incomplete_at: int | None = None
        """Step of the first report while it waits for a limited metric."""
        self.names: set[str] = set()
        """Names of all metrics so far."""
        self.counts_records = True
        """Whether steps are counted, because no record has a step."""

    def take(self, record: Record) -> Measured:
        """Process one record of the program; return its step and metrics.

        Raises:
            ValueError: The step is not a whole number, or a metric with a limit is missing.
        """
        step_name = self._name_of_step(record)
        if step_name is not None:
            self.counts_records = False
            self.step = _whole(step_name, record[step_name])
        elif self.counts_records:
            self.step += 1
        metrics = {self._rename.get(name, name): value for name, value in record.items() if name != step_name}
        self.names |= metrics.keys()
        needed = {name: metrics[name] for name in (*self._objectives, *self._limited) if name in metrics}
        self._latest |= needed
        if self.step > 0:
            self._fresh |= needed.keys() & set(self._objectives)
            self._check_limited(needed)
        return Measured(self.step, *self._judged(metrics))

    @property
    def only_result(self) -> Measured | None:
        """Result of a program that ended without a report, but logged all objectives at step 0, which MLflow and
        TensorBoard use for values logged without a step."""
        if self.step > 0 or self._missing([*self._objectives, *self._limited]):
            return None
        return Measured(1, dict(self._latest), is_report=True)

    def _missing(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name not in self._latest]

    def _check_limited(self, new: Mapping[str, float]) -> None:
        """Raise ``ValueError`` if the program starts its second report, and the first one lacks a metric with a
        limit."""
        missing = self._missing(self._limited)
        if not missing or len(self._fresh) < len(self._objectives):
            return
        if self._incomplete_at is None:
            self._incomplete_at = self.step
        elif self.step > self._incomplete_at and new.keys() >= set(self._objectives):
            raise ValueError(
                f"search.limits.{missing[0]}: the program did not report it at step {self._incomplete_at}, the step of "
                f"its first report; it reported only {', '.join(sorted(self.names))}"
            )

    def _judged(self, metrics: dict[str, float]) -> tuple[dict[str, float], bool]:
        if len(self._fresh) < len(self._objectives) or self._missing(self._limited):
            return metrics, False
        self._fresh = set()
        if self.step <= self._reported:
            # A program that continues may repeat the step at which it does.
            if self._has_reported and not self._has_noted:
                self._has_noted = True
                self._note(
                    f"it reported step {self.step} after step {self._reported}: this report is recorded, but not judged"
                )
            return metrics, False
        self._reported, self._has_reported = self.step, True
        return {**self._latest, **metrics}, True

    def _name_of_step(self, record: Record) -> str | None:
        names = STEP_NAMES if self._step_name is None else (self._step_name, *STEP_NAMES)
        for name in names:
            if name in record and (name == self._step_name or float(record[name]).is_integer()):
                return name
        return None


def _whole(name: str, value: float) -> int:
    try:
        return as_step(name, value)
    except ValueError as error:
        raise ValueError(f"task.step={error}; name another metric, or remove it, so that records are counted") from None
