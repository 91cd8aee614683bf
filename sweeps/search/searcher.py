"""Optuna as a searcher of Ray Tune: suggests points, and tells the study how each trial ended.

Ray's own ``OptunaSearch`` tells a study that a trial which a scheduler stopped is complete, and leaves failed trials
running forever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.trial import FrozenTrial, TrialState
from ray.tune.search import Searcher

from sweeps.compat.optuna import running_trial
from sweeps.config.objectives import Objectives
from sweeps.config.search import Limit, Mode
from sweeps.config.space import Distribution
from sweeps.constants import COMPLETED, NUMBER, REASON, STOPPED
from sweeps.errors import ConfigError
from sweeps.search.point_source import PointOptions, PointSource
from sweeps.search.reported_values import ReportedValues
from sweeps.space.distributions import Point, Space
from sweeps.texts.wording import counted

STOPPED_BY_USER = "stopped by a person"
"""Reason in the study for the failure of a trial that a person stopped."""


class Unfinished(NamedTuple):
    """A trial that an earlier driver left running."""

    number: int
    """Its number within the sweep."""
    point: dict[str, Any]


class OptunaSearcher(Searcher):
    """Suggests points of a space with an Optuna sampler, for any ``tune.Tuner``.

    State of a trial in the study, by how the trial ended:

    ==================================================  ===========================================================
    it trained to its end                               COMPLETE, with the best value that it reported
    a scheduler stopped it, also while it was paused    PRUNED, with its reports
    it failed, in all its retries                       FAIL
    its last report has NaN or infinity                 FAIL
    it ended without a report                           FAIL
    a person stopped it                                 FAIL
    the search was interrupted, or its driver died      RUNNING; it is suggested first, under its own number, when the
                                                        study is opened again
    ==================================================  ===========================================================

    The attribute ``sweeps:reason`` of a failed trial says why it failed. With several objectives a trial's values are
    those of the report in which the first one was best. One driver at a time may have a study open; others may read it.

    A class ``Trainable`` reports ``sweeps_completed: True`` in its last result when it is done. Where Tune ends trials
    that are done (by ``max_t`` of ASHA, or a ``stop`` criterion), override ``finished``.

    Example:
        >>> from sweeps.search import FloatDistribution, OptunaSearcher
        >>> space = {"lr": FloatDistribution(type="float", low=1e-5, high=1e-2, log=True)}
        >>> searcher = OptunaSearcher(space, metric="loss", mode="min", num_trials=20, points=[{"lr": 1e-3}])

        Give it to Tune as ``tune.TuneConfig(search_alg=searcher, num_samples=-1)``, which calls it like this:

        >>> searcher.suggest("first")
        {'lr': 0.001}
        >>> searcher.on_trial_result("first", {"loss": 0.5, "training_iteration": 1})
        >>> searcher.on_trial_complete("first", {"loss": 0.5, "training_iteration": 1})
        >>> searcher.study.best_value
        0.5
    """

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
        """
        Args:
            space: Distributions by name (dotted path).
            metric: Key of a result, or several.
            mode: Whether a smaller or a larger value is better; one for each metric.
            sampler: Default: Optuna's.
            storage: Storage of the study; default: in memory.
            study_name: Name of the study in the storage; an existing one is continued.
            num_trials: Trials to start, with those that an earlier driver started; default: no limit.
            limits: Bounds of reported metrics. A trial that breaks one cannot be the study's best, and TPE,
                the Gaussian process, NSGA-II and NSGA-III learn to avoid it; other samplers see only the value.
            last_counts: Whether a trial's value is that of its last report, and not of its best one.
            enough: Called before each suggestion; returns a reason to start no further trial, or None.
            point_options: Fields of ``PointOptions``: ``points``, ``grid``, ``duplicates``, ``lookup``, ``validate``,
                ``advisors``.

        Raises:
            TypeError: An option is unknown.
        """
        metrics = (metric,) if isinstance(metric, str) else tuple(metric)
        modes = cast("tuple[Mode, ...]", (mode,) if isinstance(mode, str) else tuple(mode))
        super().__init__(metric=metrics[0], mode=modes[0])  # schedulers compare by the first
        options = PointOptions(**point_options)
        self.objectives = Objectives(metrics, modes, limits or {}, last_counts)
        """Metrics, their modes and limits."""
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
        self.ended_because: str | None = None
        """Reason to start no further trial; None while there may be one."""
        self.interrupted = False
        """Set this when the search will be resumed later: a trial that ends before its time stays unfinished."""
        self._num_trials, self._enough, self._lookup = num_trials, enough, options.lookup
        self._running: dict[str, ReportedValues] = {}
        self._numbers: dict[str, int] = {}
        self._num_started = 0
        self._unfinished: list[Unfinished] = []
        self._source = PointSource(self.study, self.space, options)
        self._open()

    # --- an earlier driver's study ------------------------------------------------------------------------------

    def _open(self) -> None:
        """Read the trials that an earlier driver left in the study."""
        for trial in self.study.get_trials(deepcopy=False):
            if NUMBER in trial.user_attrs:
                self._add_started(trial)
            elif trial.state == TrialState.RUNNING:
                self._source.add_half_sampled(trial)

    def _add_started(self, trial: FrozenTrial) -> None:
        number, point = trial.user_attrs[NUMBER], self.space.sample(trial, self._lookup)
        self._note_started(number, point)
        if trial.state == TrialState.RUNNING:
            self._unfinished.append(Unfinished(number, point))
            self._unfinished.sort(key=lambda unfinished: unfinished.number)

    def _note_started(self, number: int, point: Point) -> None:
        self._num_started = max(self._num_started, number + 1)
        self._source.add_started(number, point)

    def restore_trial(self, trial: FrozenTrial) -> None:
        """Add a trial that the study has lost, and that another record still has."""
        self._add_started(trial)
        self.study.add_trial(trial)

    @property
    def unfinished(self) -> Sequence[Unfinished]:
        """The trials that an earlier driver left running and that were not suggested again yet."""
        return tuple(self._unfinished)

    def prune_unfinished(self, was_stopped: Callable[[FrozenTrial], bool]) -> None:
        """Mark unfinished trials as pruned that the scheduler had stopped when their driver died."""
        numbers = {unfinished.number for unfinished in self._unfinished}
        for trial in self._running_trials():
            number = trial.user_attrs.get(NUMBER)
            if number in numbers and was_stopped(trial):
                reported = ReportedValues(running_trial(self.study, trial), self.objectives, trial)
                reported.set_constraints()
                self.study.tell(reported.trial, state=TrialState.PRUNED)
                self._unfinished = [each for each in self._unfinished if each.number != number]

    # --- Tune asks for a trial ----------------------------------------------------------------------------------

    @property
    def num_trials(self) -> int | None:
        """Trials to start, all in all; may be changed at any time."""
        return self._num_trials

    @num_trials.setter
    def num_trials(self, number: int | None) -> None:
        self._num_trials = number
        self.ended_because = None

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """The next point: values by path, without parameters whose conditions do not hold.

        Args:
            trial_id: Tune's id of the trial.

        Returns:
            The point. When no further trial is to be started: None while trials run (``num_trials`` may still be
            raised), then ``FINISHED``.

        Raises:
            ConfigError: No point of the space can be trained.
        """
        if self._unfinished:
            return self._continue(trial_id, self._unfinished.pop(0))
        if self.ended_because is None:
            self.ended_because = self._end()
        if self.ended_because is None:
            found = self._source.next(self._num_started)
            if not isinstance(found, str):
                return self._start(trial_id, *found)
            self.ended_because = found
            if not self._num_started:
                raise ConfigError(found)
        return None if self._running else cast("dict[str, Any]", self.FINISHED)  # Tune's convention: a string

    def _end(self) -> str | None:
        """A reason to start no further trial; None if there is none."""
        if self._num_trials is not None and self._num_started >= self._num_trials:
            return f"{counted(self._num_trials, 'trial')} {'was' if self._num_trials == 1 else 'were'} started"
        return None if self._enough is None else self._enough(self.study)

    def _start(self, trial_id: str, trial: optuna.Trial, point: dict[str, Any]) -> dict[str, Any]:
        number = self._num_started
        trial.set_user_attr(NUMBER, number)
        self._note_started(number, point)
        self._running[trial_id] = ReportedValues(trial, self.objectives)
        self._numbers[trial_id] = number
        return point

    def _continue(self, trial_id: str, unfinished: Unfinished) -> dict[str, Any]:
        trial = next(each for each in self._running_trials() if each.user_attrs.get(NUMBER) == unfinished.number)
        self._running[trial_id] = ReportedValues(running_trial(self.study, trial), self.objectives, trial)
        self._numbers[trial_id] = unfinished.number
        return unfinished.point

    def _running_trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))

    def rename(self, trial_id: str, other: str) -> None:
        """Map a suggested trial to another of Tune's ids."""
        self._running[other] = self._running.pop(trial_id)
        self._numbers[other] = self._numbers.pop(trial_id)

    def number(self, trial_id: str) -> int:
        """The trial's number within the sweep, in the order of suggestion from 0.

        Optuna's own number differs: it counts rejected points as well.
        """
        return self._numbers[trial_id]

    # --- Tune reports a trial -----------------------------------------------------------------------------------

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Write a report into the study."""
        if trial_id in self._running:
            self._running[trial_id].add(result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Tell the study how a trial ended."""
        reported = self._running.pop(trial_id, None)
        if reported is None:
            return
        num_reports = len(reported.reports)
        if result and not error:  # Tune gives the last result only here, unless a trainable function returned
            reported.add(result)
        state, reason = self._end_state(reported, result, returned=len(reported.reports) == num_reports)
        if error:
            state, reason = TrialState.FAIL, self.why_failed(trial_id)
        if self.interrupted and (error or result is None or result.get(STOPPED)):
            return  # the trial continues when the study is opened again
        if reason is None:
            reported.set_constraints()
        else:
            reported.trial.set_user_attr(REASON, reason)
        self.study.tell(reported.trial, reported.values if state == TrialState.COMPLETE else None, state)

    def _end_state(
        self, reported: ReportedValues, result: Mapping[str, Any] | None, *, returned: bool
    ) -> tuple[TrialState, str | None]:
        """State of a trial that ended without an error, and why it failed."""
        result = result or {}  # Tune has none for a trial that was paused, or had not begun
        for metric in self.objectives.metrics:
            if not math.isfinite(result.get(metric, 0.0)):
                return TrialState.FAIL, f"{metric}={result[metric]}"
        if not reported.reports:
            return TrialState.FAIL, f"it ended before it reported {', '.join(self.objectives.metrics)}"
        if result.get(STOPPED):
            return TrialState.FAIL, STOPPED_BY_USER
        return TrialState.COMPLETE if result and self.finished(result, returned) else TrialState.PRUNED, None

    def finished(self, result: Mapping[str, Any], returned: bool) -> bool:
        """Whether a trial trained to its end, rather than being stopped by the scheduler; may be overridden.

        Args:
            result: The last one.
            returned: Whether Tune gave this result before, as it does when a trainable function returns.
        """
        return bool(result.get(COMPLETED, returned))

    def why_failed(self, trial_id: str) -> str:
        """Reason for a trial's failure, for the study; Tune does not give one, so this may be overridden."""
        return "error"

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the study is in its storage."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing: the study is in its storage."""
