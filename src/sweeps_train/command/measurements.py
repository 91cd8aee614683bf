"""Records of a program as reports: names, steps, and which of them the search judges."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sweeps_train.command.output import Record

STEP_NAMES = ("step", "global_step", "training_iteration")
"""Names by which programs print the step."""


@dataclass(frozen=True)
class Measured:
    """Metrics that a program has printed at a step."""

    step: int
    metrics: dict[str, float]
    is_report: bool
    """Whether the search's metrics are complete, so that the trial can be judged."""
    time: float = field(default_factory=time.time)
    """Unix time at which they were read."""


class Measurements:
    """Takes a program's records one after another."""

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
        self._step = 0 if done is None else done
        self._reported = -1 if done is None else done  # step 0 is one at which a program may report
        self._has_reported = self._has_noted = False
        self._latest: dict[str, float] = {}
        """Latest values of the objectives and limited metrics, of which a report has every one."""
        self._fresh: set[str] = set()
        """Objectives that have come since the last report."""
        self.names: set[str] = set()
        """Names of all metrics so far."""
        self.counts_records = True
        """Whether steps are counted, since no record has any."""

    @property
    def step(self) -> int:
        """Step of the last record."""
        return self._step

    def take(self, record: Record) -> Measured:
        """
        Raises:
            ValueError: The step is no whole number.
        """
        step_name = self._name_of_step(record)
        if step_name is not None:
            self.counts_records = False
            self._step = _whole(step_name, record[step_name])
        elif self.counts_records:
            self._step += 1
        metrics = {self._rename.get(name, name): value for name, value in record.items() if name != step_name}
        self.names |= metrics.keys()
        needed = {name: metrics[name] for name in (*self._objectives, *self._limited) if name in metrics}
        self._latest |= needed
        self._fresh |= needed.keys() & set(self._objectives)
        return Measured(self._step, *self._judged(metrics))

    def _judged(self, metrics: dict[str, float]) -> tuple[dict[str, float], bool]:
        if len(self._fresh) < len(self._objectives):
            return metrics, False
        self._fresh = set()
        if self._step <= self._reported:
            # A program that continues may repeat the step at which it does.
            if self._has_reported and not self._has_noted:
                self._has_noted = True
                self._note(
                    f"its report of step {self._step} follows that of step {self._reported}: it is recorded, not judged"
                )
            return metrics, False
        self._reported, self._has_reported = self._step, True
        return {**self._latest, **metrics}, True

    def _name_of_step(self, record: Record) -> str | None:
        names = STEP_NAMES if self._step_name is None else (self._step_name, *STEP_NAMES)
        for name in names:
            if name in record and (name == self._step_name or float(record[name]).is_integer()):
                return name
        return None


def _whole(name: str, value: float) -> int:
    if not float(value).is_integer() or value < 0:
        raise ValueError(
            f"task.step={name}: it was {value:g}, and a step is a whole number from 0; name another metric, or remove "
            "it, so that records are counted"
        )
    return int(value)
