"""Our Optuna searcher for Tune: what it tells the study is what happened.

Ray's own bridge tells a trial that a scheduler stopped as complete, and leaves failed ones running forever.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.trial import FrozenTrial, TrialState
from ray.tune.search import Searcher

from sweeps.compat.optuna import enqueued_values, running_trial
from sweeps.config.objectives import Objectives
from sweeps.config.search import Limit, Mode
from sweeps.config.space import Distribution
from sweeps.constants import COMPLETED, NUMBER, REASON, STOPPED
from sweeps.errors import ConfigError
from sweeps.search.advisors.advisor import Advisor
from sweeps.search.deduplication import KnownPoints, Point
from sweeps.search.reported_values import Progress
from sweeps.space.distributions import Space

MAX_REJECTED = 10
"""Points of the sampler that are turned down one after the other, before one is drawn at random."""
MAX_GIVEN_AGAIN = 100
"""How often what a person's point left out is sampled anew, until the point is valid."""
GIVEN_AGAIN = "sweeps:given_again"
"""Attribute of an Optuna trial: how often its given values were asked for before."""
POINT = "sweeps:point"
"""Attribute of an Optuna trial: the number, from 1, of the point to try first that it was enqueued for."""
POINTS = "sweeps:points"
"""Attribute of a study of an earlier version: how many of the points to try first were enqueued."""


STOPPED_BY_A_PERSON = "stopped by a person"
"""Why a trial failed, for the study."""


class Unfinished(NamedTuple):
    """A trial that an earlier driver left running."""

    number: int
    """Its number within the sweep."""
    point: dict[str, Any]


class OptunaSearcher(Searcher):
    """Suggests points of a space with an Optuna sampler, for any ``tune.Tuner``.

    How a trial ends is told to the study so:

    ==================================================  ===========================================================
    it came to its end                                  COMPLETE, with the best value that it reported
    a scheduler stopped it, also while it was paused    PRUNED, with its reports
    it failed, in all its retries                       FAIL
    its last report has NaN or infinity                 FAIL
    it ended without a report                           FAIL
    a person stopped it                                 FAIL
    the search was interrupted, or its driver died      it stays RUNNING, and is the first to be suggested, under its
                                                        own number, when the study is opened again
    ==================================================  ===========================================================

    ``sweeps:reason`` in the attributes of a failed trial says why. Several objectives: a trial's values are those of
    the report in which the first one was best. One driver at a time may have a study open; others may read it.

    Example:
        >>> searcher = OptunaSearcher({"lr": FloatDistribution(type="float", low=1e-5, high=1e-2, log=True)},
        ...                           metric="loss", mode="min", num_trials=20)
        >>> tune.Tuner(trainable, tune_config=tune.TuneConfig(search_alg=searcher, num_samples=-1))
    """

    def __init__(  # noqa: PLR0913 - each a choice of its own, with a default
        self,
        space: Mapping[str, Distribution] | Space,
        *,
        metric: str | Sequence[str],
        mode: Mode | Sequence[Mode],
        sampler: BaseSampler | None = None,
        storage: BaseStorage | str | None = None,
        study_name: str | None = None,
        num_trials: int | None = None,
        points: Sequence[Point] = (),
        grid: Sequence[Point] | None = None,
        duplicates: bool = False,
        limits: Mapping[str, Limit] | None = None,
        lookup: Callable[[str], Any] = lambda path: None,
        validate: Callable[[Point], object] | None = None,
        advisors: Sequence[Advisor] = (),
        enough: Callable[[optuna.Study], str | None] | None = None,
    ):
        """
        Args:
            space: Distributions by name (dotted path).
            metric: Key of a result, or several.
            mode: Whether a smaller or a larger value is better; for each of several metrics.
            sampler: Default: Optuna's.
            storage: Where the study is kept; default: in memory.
            study_name: Name of the study in the storage; one that is there is continued.
            num_trials: Trials to start, with those that an earlier driver started; default: without end.
            points: Points to suggest first; what one leaves out is sampled.
            grid: The only points to suggest after them, in this order; ``sampler`` is then not asked.
            duplicates: Suggest points again that were suggested before.
            limits: Bounds of reported metrics. A trial that breaks one cannot be the study's best, and TPE,
                the Gaussian process, NSGA-II and NSGA-III learn to keep away; other samplers see the value alone.
            lookup: Gives the value of what conditions name but the space does not search.
            validate: Raises ``ConfigError`` for a point that cannot be run; it is told as failed, and the next asked.
            advisors: May set values of the next point, and refuse points; the first that sets a path has it.
            enough: Asked before each suggestion for a reason to start no further trial; None if there is none.
        """
        metrics = (metric,) if isinstance(metric, str) else tuple(metric)
        modes = cast("tuple[Mode, ...]", (mode,) if isinstance(mode, str) else tuple(mode))
        super().__init__(metric=metrics[0], mode=modes[0])  # what schedulers go by
        self.objectives = Objectives(metrics, modes, limits or {})
        self.space = space if isinstance(space, Space) else Space(space)
        self.study = optuna.create_study(
            storage=InMemoryStorage() if storage is None else storage,
            sampler=sampler,
            study_name=study_name,
            directions=["minimize" if each == "min" else "maximize" for each in modes],
            load_if_exists=True,
        )
        self.enough = enough
        self.ended_because: str | None = None
        """Why no further trial is started; None while there may be one."""
        self.interrupted = False
        """Set this when the search is to be continued later: a trial that ends before its time stays unfinished."""
        self._num_trials = num_trials
        self._lookup = lookup
        self._validate = validate
        self._advisors = advisors
        self._duplicates = duplicates
        self._is_grid = grid is not None
        self._known = KnownPoints(self.space, lookup, grid)
        self._running: dict[str, Progress] = {}
        self._numbers: dict[str, int] = {}
        self._started = 0
        self._unfinished: list[Unfinished] = []
        self._half_sampled: list[FrozenTrial] = []
        """Trials whose driver died while it asked for their values."""
        self._mistake: str | None = None
        self._open()
        self._enqueue(points)

    # --- an earlier driver's study ------------------------------------------------------------------------------

    def _open(self) -> None:
        """Take over what an earlier driver left in the study."""
        for trial in self.study.get_trials(deepcopy=False):
            number = trial.user_attrs.get(NUMBER)
            if number is not None:
                point = self.space.sample(trial, self._lookup)
                self._note(number, point)
                if trial.state == TrialState.RUNNING:
                    self._unfinished.append(Unfinished(number, point))
            elif trial.state == TrialState.RUNNING:
                self._half_sampled.append(trial)
        self._unfinished.sort(key=lambda unfinished: unfinished.number)

    def _note(self, number: int, point: Point) -> None:
        """A trial was started."""
        self._started = max(self._started, number + 1)
        if not self._duplicates or self._is_grid:
            self._known.add(point, f"trial {number:04} had it")

    def _taken_up(self, trial: FrozenTrial) -> optuna.Trial:
        return running_trial(self.study, trial)

    def _enqueue(self, points: Sequence[Point]) -> None:
        trials = self.study.get_trials(deepcopy=False)
        done = max((trial.user_attrs[POINT] for trial in trials if POINT in trial.user_attrs), default=0)
        done = max(done, self.study.user_attrs.get(POINTS, 0))
        for index, point in enumerate(points[done:], start=done + 1):
            self.study.enqueue_trial(self.space.encode(point), user_attrs={POINT: index})  # at once, or not at all

    def take_in(self, trial: FrozenTrial) -> None:
        """Add a trial that the study has lost, and that another record still has."""
        number, point = trial.user_attrs[NUMBER], self.space.sample(trial, self._lookup)
        self.study.add_trial(trial)
        self._note(number, point)
        if trial.state == TrialState.RUNNING:
            self._unfinished.append(Unfinished(number, point))
            self._unfinished.sort(key=lambda unfinished: unfinished.number)

    @property
    def unfinished(self) -> Sequence[Unfinished]:
        """The trials that an earlier driver left running and that were not suggested again yet."""
        return tuple(self._unfinished)

    def prune_unfinished(self, was_stopped: Callable[[FrozenTrial], bool]) -> None:
        """Tell the study of unfinished trials that the scheduler had stopped, when their driver died before it did."""
        numbers = {unfinished.number for unfinished in self._unfinished}
        for trial in self._of_state(TrialState.RUNNING):
            number = trial.user_attrs.get(NUMBER)
            if number in numbers and was_stopped(trial):
                progress = Progress(self._taken_up(trial), self.objectives, trial)
                progress.set_constraints()
                self.study.tell(progress.trial, state=TrialState.PRUNED)
                self._unfinished = [each for each in self._unfinished if each.number != number]

    # --- what Tune asks -----------------------------------------------------------------------------------------

    @property
    def num_trials(self) -> int | None:
        """Trials to start, all in all; may be changed at any time."""
        return self._num_trials

    @num_trials.setter
    def num_trials(self, number: int | None) -> None:
        self._num_trials = number
        self.ended_because = None

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """The next point, by path; parameters whose conditions do not hold are absent.

        Returns:
            When no further trial is to be started, None as long as trials run (``num_trials`` may still be raised),
            then ``FINISHED``.

        Raises:
            ConfigError: The very first point could not be made: the space has none that is valid.
        """
        if self._unfinished:
            return self._continue(trial_id, self._unfinished.pop(0))
        if self.ended_because is None:
            self.ended_because = self._end()
        if self.ended_because is None:
            found = self._next_point()
            if not isinstance(found, str):
                return self._start(trial_id, *found)
            self.ended_because = found
            if not self._started:
                raise ConfigError(found)
        return None if self._running else cast("dict[str, Any]", self.FINISHED)  # a string, by Tune's own convention

    def _end(self) -> str | None:
        if self._num_trials is not None and self._started >= self._num_trials:
            return f"{self._num_trials} trials were started"
        return None if self.enough is None else self.enough(self.study)

    def _start(self, trial_id: str, trial: optuna.Trial, point: dict[str, Any]) -> dict[str, Any]:
        number = self._started
        trial.set_user_attr(NUMBER, number)
        self._note(number, point)
        self._running[trial_id] = Progress(trial, self.objectives)
        self._numbers[trial_id] = number
        return point

    def _continue(self, trial_id: str, unfinished: Unfinished) -> dict[str, Any]:
        running = self._of_state(TrialState.RUNNING)
        trial = next(each for each in running if each.user_attrs.get(NUMBER) == unfinished.number)
        self._running[trial_id] = Progress(self._taken_up(trial), self.objectives, trial)
        self._numbers[trial_id] = unfinished.number
        return unfinished.point

    def number(self, trial_id: str) -> int:
        """The trial's number within the sweep, in the order of suggestion from 0. It is not Optuna's number, since
        that counts points that were turned down, too."""
        return self._numbers[trial_id]

    # --- the next point -----------------------------------------------------------------------------------------

    def _next_point(self) -> tuple[optuna.Trial, dict[str, Any]] | str:
        """A point that is worth training, or why there is none."""
        while self._half_sampled:  # asked again, they get the same: as if their driver had not died
            half = self._half_sampled.pop(0)
            trial = self._taken_up(half)
            point = self.space.sample(trial, self._lookup)
            refused = None if enqueued_values(half) is not None else self._refused(point)
            reason = self._known.why(point) or self._invalid(point) or refused
            if reason is None:
                return trial, point
            self._reject(trial, reason)
        rejected = 0
        while rejected < MAX_REJECTED:
            given = bool(self._of_state(TrialState.WAITING))
            if not given and (self._is_grid or self._known.exhausted):
                break
            if not given:
                self._take_advice()
            trial, point = self._ask()
            reason = self._known.why(point) or self._invalid(point) or (None if given else self._refused(point))
            if reason is None:
                return trial, point
            self._reject(trial, reason)
            if given:
                self._give_again(trial, point)
            rejected += not given
        return self._draw()

    def _give_again(self, trial: optuna.Trial, point: Point) -> None:
        """Of a point that a person gave, what it left out is sampled anew: that may be what was wrong with it."""
        given = enqueued_values(self.study.get_trials(deepcopy=False)[trial.number]) or {}
        tried = trial.user_attrs.get(GIVEN_AGAIN, 0)
        if set(given) < set(self.space.encode(point)) and tried < MAX_GIVEN_AGAIN:
            self.study.enqueue_trial(dict(given), user_attrs={GIVEN_AGAIN: tried + 1})

    def _draw(self) -> tuple[optuna.Trial, dict[str, Any]] | str:
        """The next point of the grid; or a random point, since the sampler chose none that is worth training."""
        seed = None if self._is_grid else len(self.study.get_trials(deepcopy=False))
        chosen: Point | None = None
        for point in itertools.islice(self._known.unknown(seed, self._invalid), MAX_REJECTED):
            chosen = point
            if self._is_grid or self._refused(point) is None:
                break
        if chosen is None:
            invalid = f"; the last that was tried: {self._mistake}" if self._mistake else ""
            return f"no point of the space is left that can be trained{invalid}"
        self.study.enqueue_trial(self.space.encode(chosen))
        return self._ask()

    def _ask(self) -> tuple[optuna.Trial, dict[str, Any]]:
        trial = self.study.ask()
        return trial, self.space.sample(trial, self._lookup)

    def _take_advice(self) -> None:
        values: dict[str, Any] = {}
        for advisor in self._advisors:
            values = {**advisor.fix(self.study, self._started), **values}
        if values:
            self.study.enqueue_trial(self.space.encode(values))

    def _invalid(self, point: Point) -> str | None:
        try:
            if self._validate is not None:
                self._validate(point)
        except ConfigError as error:
            self._mistake = str(error)
            self._known.add(point, self._mistake)
            return self._mistake
        return None

    def _refused(self, point: Point) -> str | None:
        reasons = (advisor.refuse(self.study, point) for advisor in self._advisors)
        return next((reason for reason in reasons if reason is not None), None)

    def _reject(self, trial: optuna.Trial, reason: str) -> None:
        trial.set_user_attr(REASON, reason)
        self.study.tell(trial, state=TrialState.FAIL)

    def _of_state(self, state: TrialState) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=(state,))

    # --- what Tune reports --------------------------------------------------------------------------------------

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if trial_id in self._running:
            self._running[trial_id].add(result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        progress = self._running.pop(trial_id, None)
        if progress is None:
            return
        reports = len(progress.reports)
        if result and not error:  # Tune gives the last result only here, if the trial did not just return
            progress.add(result)
        state, reason = self._ending(progress, result, returned=len(progress.reports) == reports)
        if error:
            state, reason = TrialState.FAIL, self.why_failed(trial_id)
        if self.interrupted and (error or result is None or result.get(STOPPED)):
            return  # it goes on when the study is opened again
        if reason is None:
            progress.set_constraints()
        else:
            progress.trial.set_user_attr(REASON, reason)
        self.study.tell(progress.trial, progress.values if state == TrialState.COMPLETE else None, state)

    def _ending(
        self, progress: Progress, result: Mapping[str, Any] | None, *, returned: bool
    ) -> tuple[TrialState, str | None]:
        """How a trial without an error ended, and why it failed."""
        result = result or {}  # Tune has none for one that was paused, or had not begun
        for metric in self.objectives.metrics:
            if not math.isfinite(result.get(metric, 0.0)):
                return TrialState.FAIL, f"{metric}={result[metric]}"
        if not progress.reports:
            return TrialState.FAIL, f"it ended before it reported {', '.join(self.objectives.metrics)}"
        if result.get(STOPPED):
            return TrialState.FAIL, STOPPED_BY_A_PERSON
        return TrialState.COMPLETE if result and self.finished(result, returned) else TrialState.PRUNED, None

    def finished(self, result: Mapping[str, Any], returned: bool) -> bool:
        """Whether a trial came to its end, rather than being stopped by the scheduler. To be overridden where Tune ends
        trials that are done, as by ``max_t`` of ASHA or a ``stop`` criterion.

        Args:
            result: The last one. A class ``Trainable`` says ``sweeps_completed: True`` in it if it is done.
            returned: Tune has said this result before, as it does when a trainable function returns.
        """
        return bool(result.get(COMPLETED, returned))

    def why_failed(self, trial_id: str) -> str:
        """Why a trial failed, for the study; Tune does not say. To be overridden."""
        return "error"

    def save(self, checkpoint_path: str) -> None:
        """Nothing to do: the study is in its storage."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to do: the study is in its storage."""
