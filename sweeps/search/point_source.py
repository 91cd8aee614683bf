"""Source of the next point to train: enqueued points, the grid, or suggestions of the sampler and the advisors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.trial import TrialState

from sweeps.compat.optuna import enqueued_values, running_trial
from sweeps.constants import NUMBER, REASON
from sweeps.errors import ConfigError
from sweeps.search.advisors.advisor import Advisor
from sweeps.search.deduplication import RANDOM_DRAWS, KnownPoints
from sweeps.space.space import Lookup, Point, Space, common_context

MAX_REJECTED = 10
"""Maximum successive points of the sampler that are rejected before a point is drawn at random."""
MAX_RESAMPLED = 100
"""Maximum number of times that the missing values of an enqueued point are sampled again until the point is valid."""
RESAMPLED = "sweeps:given_again"
"""Attribute of an Optuna trial: number of times that the missing values of its enqueued point were sampled before."""
POINT = "sweeps:point"
"""Attribute of an Optuna trial: position, from 1, of its enqueued point among the points to try first."""
GIVEN = "sweeps:given"
"""Attribute of an Optuna trial: paths of the values that a person gave of its enqueued point; without it, all values of
the point are given. Parameters that these exist under have other values each time that the point is enqueued."""
POINTS = "sweeps:points"
"""Attribute of a study of an earlier version: number of points to try first that were enqueued."""


@dataclass(frozen=True, kw_only=True)
class PointOptions:
    """Options of a ``PointSource``, which are keyword arguments of ``OptunaSearcher`` as well."""

    points: Sequence[Point] = ()
    """Points to suggest first. Missing values are sampled, or, if a point's parameters exist only under some, tried in
    order, until the point is valid and new."""
    grid: Sequence[Point] | None = None
    """The only points to suggest after ``points``, in this order; the sampler is not used."""
    duplicates: bool = False
    """Whether to suggest points again that were suggested before."""
    lookup: Lookup = lambda path: None
    """Returns the config's own value at a path, for conditions on paths that are not searched."""
    validate: Callable[[Point], object] | None = None
    """Raises ``ConfigError`` for a point that cannot be run; the point counts as failed, and the next one is tried."""
    advisors: Sequence[Advisor] = ()
    """Advisors, which may set values of the next point, and refuse points; if two set the same path, the first one's
    value applies."""


class PointSource:
    """Chooses the next point of a study to train."""

    def __init__(self, study: optuna.Study, space: Space, options: PointOptions):
        self._study, self._space, self._options = study, space, options
        self._known = KnownPoints(space, options.lookup, options.grid)
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        self._half_sampled = [trial for trial in running if NUMBER not in trial.user_attrs]
        """Trials whose driver died while their values were being sampled."""
        self._last_mistake: str | None = None
        self._enqueue(options.points)

    def _enqueue(self, points: Sequence[Point]) -> None:
        """Enqueue the points to try first, unless an earlier driver has done so."""
        trials = self._study.get_trials(deepcopy=False)
        done = max((trial.user_attrs[POINT] for trial in trials if POINT in trial.user_attrs), default=0)
        done = max(done, self._study.user_attrs.get(POINTS, 0))
        for index, point in enumerate(points[done:], start=done + 1):
            self._enqueue_given([*point], self._space.encode(point), {POINT: index})

    def _enqueue_given(self, given: Sequence[str], values: Mapping[str, Any], attributes: Mapping[str, int]) -> None:
        """Enqueue a person's point, given its paths and encoded values, with values under which its parameters
        exist."""
        context = self._context_of(given, attributes.get(RESAMPLED, 0))
        # One write: all or nothing.
        self._study.enqueue_trial({**context, **values}, user_attrs={GIVEN: given, **attributes})

    def _context_of(self, given: Sequence[str], number: int) -> dict[str, Any]:
        """Return encoded values under which a person's parameters exist, other ones for each number as long as there
        are others."""
        searched = [path for path in given if path in self._space]
        return self._space.encode(common_context(self._space, searched, self._options.lookup, number) or {})

    def add_started(self, number: int, point: Point) -> None:
        """Record that a trial of this number was started at a point."""
        if not self._options.duplicates or self._options.grid is not None:
            self._known.add(point, f"trial {number:04} had it")

    def next(self, number: int) -> tuple[optuna.Trial, dict[str, Any]] | str:
        """Return a running trial and its point, or the reason why there is none.

        Args:
            number: Number that the trial will have within its sweep.
        """
        while self._half_sampled:  # sampled again, they get the same values as if their driver had not died
            half_sampled = self._half_sampled.pop(0)
            trial = running_trial(self._study, half_sampled)
            point = self._space.sample(trial, self._options.lookup)
            if self._is_accepted(trial, point, advised=enqueued_values(half_sampled) is None):
                return trial, point
        rejected = 0
        while rejected < MAX_REJECTED:
            is_enqueued = bool(self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)))
            if not is_enqueued and (self._options.grid is not None or self._known.exhausted):
                break
            if not is_enqueued:
                self._enqueue_advice(number)
            trial, point = self._ask()
            if self._is_accepted(trial, point, advised=not is_enqueued):
                return trial, point
            if is_enqueued:
                self._resample_missing(trial, point)
            rejected += not is_enqueued
        return self._draw()

    def _ask(self) -> tuple[optuna.Trial, dict[str, Any]]:
        trial = self._study.ask()
        return trial, self._space.sample(trial, self._options.lookup)

    def _is_accepted(self, trial: optuna.Trial, point: Point, *, advised: bool) -> bool:
        """Whether a point should be trained; if not, its trial is recorded as failed in the study."""
        reason = self._known.why(point)
        if reason is None and (reason := self._invalid(point)) is not None:
            self._known.add(point, reason)
        if reason is None and advised:
            reason = self._refused(point)
        if reason is None:
            return True
        trial.set_user_attr(REASON, reason)
        self._study.tell(trial, state=TrialState.FAIL)
        return False

    def _enqueue_advice(self, number: int) -> None:
        values: dict[str, Any] = {}
        for advisor in self._options.advisors:
            values = {**advisor.fix(self._study, number), **values}
        if values:
            self._study.enqueue_trial(self._space.encode(values))

    def _resample_missing(self, trial: optuna.Trial, point: Point) -> None:
        """Enqueue a rejected point again if some of its values were not given, since these may have caused the
        rejection."""
        values = enqueued_values(self._study.get_trials(deepcopy=False)[trial.number]) or {}
        given = trial.user_attrs.get(GIVEN, [*values])
        resampled = trial.user_attrs.get(RESAMPLED, 0)
        sampled = self._space.encode(point).keys() - {*given}
        tried, other = (self._context_of(given, number) for number in (resampled, resampled + 1))
        cannot_change = GIVEN in trial.user_attrs and other == tried and sampled <= tried.keys()
        if sampled and not cannot_change and resampled < MAX_RESAMPLED:
            position = {POINT: trial.user_attrs[POINT]} if POINT in trial.user_attrs else {}
            again = {path: value for path, value in values.items() if path in given}
            self._enqueue_given(given, again, {**position, RESAMPLED: resampled + 1})

    def _draw(self) -> tuple[optuna.Trial, dict[str, Any]] | str:
        """Return the next point of the grid, or a random point if the sampler suggested none that is worth training."""
        is_grid = self._options.grid is not None
        seed = None if is_grid else len(self._study.get_trials(deepcopy=False))
        chosen: Point | None = None
        for point in itertools.islice(self._known.unknown(seed, self._invalid), MAX_REJECTED):
            chosen = point
            if is_grid or self._refused(point) is None:
                break
        if chosen is None:
            mistake = f"; the last that was tried: {self._last_mistake}" if self._last_mistake else ""
            drawn = f"none of {RANDOM_DRAWS:,} random points"
            none = "no point of the space is left that" if self._known.exhausted else drawn
            return f"{none} can be trained{mistake}"
        self._study.enqueue_trial(self._space.encode(chosen))
        return self._ask()

    def _invalid(self, point: Point) -> str | None:
        """Return the reason why a point cannot be run; None if it can."""
        try:
            if self._options.validate is not None:
                self._options.validate(point)
        except ConfigError as error:
            self._last_mistake = str(error)
            return self._last_mistake
        return None

    def _refused(self, point: Point) -> str | None:
        """Return the reason why an advisor refuses a point; None if none does."""
        reasons = (advisor.refuse(self._study, point) for advisor in self._options.advisors)
        return next((reason for reason in reasons if reason is not None), None)
