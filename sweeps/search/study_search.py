"""A search in an Optuna study: suggests points, and records in the study how each trial ended.

Ray's own ``OptunaSearch`` reports a trial that a scheduler stopped as complete, and leaves failed trials running
forever.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple, cast

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from sweeps.compat.optuna import running_trial
from sweeps.config.objectives import Objectives
from sweeps.config.search import Limit, Mode
from sweeps.config.space import Distribution
from sweeps.constants import CHOICES, COMPLETED, NUMBER, ORIGIN_PREFIX, REASON, STOPPED
from sweeps.errors import ConfigError
from sweeps.runtime.checkpoint_layout import Origin
from sweeps.search.point_source import PointOptions, PointSource
from sweeps.search.reported_values import ReportedValues
from sweeps.search.schedulers.scheduler import Exploit
from sweeps.search.trial_ids import trial_number
from sweeps.space.distributions import decode, ordered_choices
from sweeps.space.space import Point, Space
from sweeps.texts.wording import counted

STOPPED_BY_USER = "stopped by a person"
"""Reason in the study for the failure of a trial that a person stopped."""
ENDED: Mapping[TrialState, Literal["finished", "pruned", "failed"]] = {
    TrialState.COMPLETE: "finished",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}
"""Names of the states of ended trials."""


class Suggested(NamedTuple):
    """A trial to start, or to continue where an earlier driver left it."""

    number: int
    """Number of the trial within the search, in the order of suggestion from 0. Optuna's own number differs, since it
    also counts rejected points."""
    point: dict[str, Any]
    """Values of the trial by path, without parameters whose conditions do not hold; if it continues from another
    trial's state, the values from then on."""
    reported: int | None = None
    """Last step that the trial has reported to an earlier driver; None if it is new."""
    origin: Origin | None = None
    """State of another trial from which it last continued."""


class StudySearch:
    """Suggests points of a space with an Optuna sampler, and records their outcomes in a study."""

    def __init__(
        self,
        space: Mapping[str, Distribution] | Space,
        *,
        metric: str | Sequence[str],
        mode: Mode | Sequence[Mode],
        sampler: BaseSampler | None = None,
        storage: BaseStorage | str | None = None,
        study_name: str | None = None,
        num_trials: int | None = None,
        limits: Mapping[str, Limit] | None = None,
        last_counts: bool = False,
        enough: Callable[[optuna.Study], str | None] | None = None,
        **point_options: Any,
    ):
        """Open the study. It takes the arguments of ``OptunaSearcher``.

        Raises:
            TypeError: An option is unknown.
        """
        metrics = (metric,) if isinstance(metric, str) else tuple(metric)
        modes = cast("tuple[Mode, ...]", (mode,) if isinstance(mode, str) else tuple(mode))
        options = PointOptions(**point_options)
        self.objectives = Objectives(metrics, modes, limits or {}, last_counts)
        """Metrics, modes and limits of the search."""
        self.space = space if isinstance(space, Space) else Space(space)
        """Distributions of the parameters."""
        self.study = optuna.create_study(
            storage=InMemoryStorage() if storage is None else storage,
            sampler=sampler,
            study_name=study_name,
            directions=["minimize" if each == "min" else "maximize" for each in modes],
            load_if_exists=True,
        )
        """Optuna's study with all trials."""
        choices = _storable(ordered_choices(self.space.distributions))
        if self.study.user_attrs.get(CHOICES, {}) != choices:
            self.study.set_user_attr(CHOICES, choices)
        self.ended_because: str | None = None
        """Reason to start no further trial; None while there may be one."""
        self.interrupted = False
        """Set to True when the search will be resumed later: a trial that ends early then stays unfinished."""
        self._num_trials, self._enough, self._lookup = num_trials, enough, options.lookup
        self._running: dict[int, ReportedValues] = {}
        self._num_started = 0
        self._unfinished: list[Suggested] = []
        self._source = PointSource(self.study, self.space, options)
        for trial in self.study.get_trials(deepcopy=False):
            if NUMBER in trial.user_attrs:
                self._add_started(trial)

    # --- an earlier driver's study ------------------------------------------------------------------------------

    def _add_started(self, trial: FrozenTrial) -> None:
        values = trial.params if trial.state.is_finished() else {}  # which Optuna would check once more
        given = {path: decode(self.space[path], values[path]) for path in self.space if path in values}
        number, point = trial.user_attrs[NUMBER], self.space.sample(trial, self._lookup, given)
        self._note_started(number, point)
        if trial.state == TrialState.RUNNING:
            self._unfinished.append(Suggested(number, point))
            self._unfinished.sort(key=lambda unfinished: unfinished.number)

    def _note_started(self, number: int, point: Point) -> None:
        self._num_started = max(self._num_started, number + 1)
        self._source.add_started(number, point)

    def restore_trial(self, trial: FrozenTrial) -> None:
        """Add a trial that the study has lost, from another record."""
        self._add_started(trial)
        self.study.add_trial(trial)

    @property
    def unfinished(self) -> Sequence[Suggested]:
        """The trials that an earlier driver left running and that were not suggested again yet."""
        return tuple(self._unfinished)

    def prune_unfinished(self, was_stopped: Callable[[FrozenTrial], bool]) -> None:
        """Mark unfinished trials as pruned if the scheduler had stopped them when their driver died."""
        numbers = {unfinished.number for unfinished in self._unfinished}
        for trial in self._running_trials():
            number = trial.user_attrs.get(NUMBER)
            if number in numbers and was_stopped(trial):
                reported = ReportedValues(running_trial(self.study, trial), self.objectives, trial)
                reported.set_constraints()
                self.study.tell(reported.trial, state=TrialState.PRUNED)
                self._unfinished = [each for each in self._unfinished if each.number != number]

    # --- the next trial -----------------------------------------------------------------------------------------

    @property
    def num_trials(self) -> int | None:
        """Total number of trials to start; may be changed at any time."""
        return self._num_trials

    @num_trials.setter
    def num_trials(self, number: int | None) -> None:
        self._num_trials = number
        self.ended_because = None

    @property
    def num_awaited(self) -> int:
        """Number of trials for which a population waits: ``num_trials``, or 0 once no further trial is to start."""
        return 0 if self.ended_because is not None else self._num_trials or 0

    @property
    def has_running(self) -> bool:
        """Whether a suggested trial has not ended."""
        return bool(self._running)

    @property
    def _has_left(self) -> bool:
        """Whether fewer trials were started than are to start."""
        return self._num_trials is None or self._num_started < self._num_trials

    def next_trial(self) -> Suggested | None:
        """Return the next trial; None if no further one is to start (``num_trials`` may still be raised).

        Raises:
            ConfigError: No point of the space can be trained.
        """
        if self._unfinished:
            return self._continue(self._unfinished.pop(0))
        if self.ended_because is None:
            self.ended_because = self._end()
        if self.ended_because is None:
            found = self._source.next(self._num_started)
            if not isinstance(found, str):
                return self._start(*found)
            self.ended_because = found
            if not self._num_started:
                raise ConfigError(found)
        return None

    def _end(self) -> str | None:
        """Return a reason to start no further trial; None if there is none."""
        if self._num_trials is not None and not self._has_left:
            return f"{counted(self._num_trials, 'trial')} {'was' if self._num_trials == 1 else 'were'} started"
        return None if self._enough is None else self._enough(self.study)

    def _start(self, trial: optuna.Trial, point: dict[str, Any]) -> Suggested:
        number = self._num_started
        trial.set_user_attr(NUMBER, number)
        self._note_started(number, point)
        self._running[number] = ReportedValues(trial, self.objectives)
        return Suggested(number, point)

    def _continue(self, unfinished: Suggested) -> Suggested:
        number, point = unfinished.number, unfinished.point
        trial = next(each for each in self._running_trials() if each.user_attrs.get(NUMBER) == number)
        reported = ReportedValues(running_trial(self.study, trial), self.objectives, trial)
        self._running[number] = reported
        step = max(reported.reports, default=0)
        parameters, origin = next(reversed(taken_over(trial)), (point, None))
        return Suggested(number, dict(parameters), step, origin)

    def _running_trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))

    # --- what becomes of it -------------------------------------------------------------------------------------

    def report(self, number: int, result: Mapping[str, Any]) -> None:
        """Write a report of a trial into the study."""
        if number in self._running:
            self._running[number].add(result)

    def exploited(self, exploit: Exploit) -> None:
        """Record that a trial continues from another trial's state; its initial values stay recorded as well."""
        origin, parameters, decision = exploit.origin, dict(exploit.parameters), dict(exploit.decision)
        kept = {"trial": origin.trial, "step": origin.step, "parameters": parameters, "decision": decision}
        trial = self._running[trial_number(exploit.trial)].trial
        trial.set_user_attr(f"{ORIGIN_PREFIX}{origin.num_exploits}", kept)

    def end(self, number: int, result: Mapping[str, Any] | None = None, *, error: str | None = None) -> None:
        """Record in the study how a trial ended.

        Args:
            number: The trial's number.
            result: Last result of the trial; None if it did not run.
            error: Reason for which it failed.
        """
        reported = self._running.pop(number, None)
        if reported is None:
            return
        num_reports = len(reported.reports)
        if result and error is None:  # Tune gives the last result only here, unless a trainable function returned
            reported.add(result)
        state, reason = TrialState.FAIL, error
        if error is None:
            state, reason = self._end_state(reported, result, returned=len(reported.reports) == num_reports)
        if self.interrupted and (error is not None or result is None or result.get(STOPPED)):
            return  # the trial continues when the study is opened again
        if reason is None:
            reported.set_constraints()
        else:
            reported.trial.set_user_attr(REASON, reason)
        self.study.tell(reported.trial, reported.values if state == TrialState.COMPLETE else None, state)

    def _end_state(
        self, reported: ReportedValues, result: Mapping[str, Any] | None, *, returned: bool
    ) -> tuple[TrialState, str | None]:
        """Return the state of a trial that ended without an error, and the reason for its failure."""
        result = result or {}  # Tune has none for a trial that was paused, or had not begun
        for metric in self.objectives.metrics:
            if not math.isfinite(result.get(metric, 0.0)):
                return TrialState.FAIL, f"{metric}={result[metric]}"
        if result.get(STOPPED):
            return TrialState.FAIL, STOPPED_BY_USER
        if not reported.reports:
            return TrialState.FAIL, f"it ended before it reported {', '.join(self.objectives.metrics)}"
        return TrialState.COMPLETE if result and self.finished(result, returned) else TrialState.PRUNED, None

    def finished(self, result: Mapping[str, Any], returned: bool) -> bool:
        """Whether a trial trained to its end instead of being stopped by the scheduler; may be overridden.

        Args:
            result: Last result of the trial.
            returned: Whether this result was reported before, as Tune does when a trainable function returns.
        """
        return bool(result.get(COMPLETED, returned))


def taken_over(trial: FrozenTrial) -> list[tuple[Mapping[str, Any], Origin]]:
    """Return the states of other trials from which a trial has continued, each with the trial's values from then on, in
    order."""
    attributes = trial.user_attrs
    counts = sorted(int(name.removeprefix(ORIGIN_PREFIX)) for name in attributes if name.startswith(ORIGIN_PREFIX))
    kept = [attributes[f"{ORIGIN_PREFIX}{count}"] for count in counts]
    return [
        (each["parameters"], Origin(each["trial"], each["step"], count))
        for count, each in zip(counts, kept, strict=True)
    ]


def _storable(choices: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Return choices as a study's storage returns them, without parameters that it cannot store, such as of dates."""
    stored = {}
    for name, values in choices.items():
        with suppress(TypeError):
            stored[name] = json.loads(json.dumps(values))
    return stored
