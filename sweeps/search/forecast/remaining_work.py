"""Simulates the time and work that the rest of a search takes, from the trials so far.

The progress at which trials end, stopped by the scheduler or complete, is drawn from a Kaplan-Meier estimate (1958,
https://doi.org/10.1080/01621459.1958.10501452), in which running trials count as not ended yet. The ended trials alone
would be too short early in a search, since pruned ones end first. The uncertainty of the estimate comes from a Bayesian
bootstrap (Rubin, 1981, https://doi.org/10.1214/aos/1176345338).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

HALF_LIFE = 0.25
"""Share of the trials so far after which a trial has half the weight, since samplers and schedulers change as they
learn."""
FIRST_DECISION = math.log(3)
"""Exposure of a trial before its first report, as the logarithm of a ratio of progress: about that of two successive
rungs."""
WHOLE = 1.0
"""Progress of a complete training, if its length is known."""
MOST_OPERATIONS = 2e7
"""Maximum operations of one simulation of all places and trials; above it, fewer draws are made."""
FEWEST_DRAWS = 40


@dataclass(frozen=True, kw_only=True)
class Course:
    """Progress and time of a trial so far."""

    progress: float
    """Completed share of the trial's training; seconds if the length of a training is unknown."""
    held_s: float
    """Seconds for which the trial had held workers at its last report; 0 before its first one."""
    state: str
    """``ended`` or ``running``."""
    first: tuple[float, float] | None = None
    """Progress and seconds with workers at the trial's first report; None before it, or if unknown."""


@dataclass(frozen=True, kw_only=True)
class SearchSoFar:
    """State of a search so far, and its remaining budgets."""

    trials: Sequence[Course]
    """Trials of the search, in the order of their starts."""
    to_start: int
    """Number of trials that have not been started yet."""
    places: int
    """Number of trials that run at once."""
    knows_length: bool = True
    """Whether the progress of trials is a share of their whole training instead of seconds."""
    limit_s: float = math.inf
    """Remaining seconds of the search's budgets."""
    stage: int | None = None
    """Number of the stage to which the trials belong; None: the sweep itself."""
    to_follow: int = 0
    """Number of trials that follow the current stage: those of later stages and of the final search."""
    repeats: tuple[int, int] = (0, 0)
    """Minimum and maximum number of whole trainings with other seeds after the search, to confirm its winner."""
    workers: float = 1.0
    """Workers of a trial."""
    gpus: float = 0.0
    """GPUs of a trial."""
    hourly_cost: float = 0.0
    """Cost of a trial per hour; 0 without prices."""


@dataclass(frozen=True)
class RemainingWork:
    """Simulated draws of the remaining work."""

    wall_s: Floats
    """Seconds to the end."""
    held_s: Floats
    """Seconds that trials will hold their workers, summed over trials."""


def remaining_work(search: SearchSoFar, draws: int, random: np.random.Generator) -> RemainingWork | None:
    """Simulate the rest of a search.

    Returns:
        The simulations; None if no trial has ended, or none has reported.
    """
    trials, to_start, repeats = search.trials, search.to_start, search.repeats
    start_s = _start_s(trials)
    units = np.array([_unit_s(each, start_s) for each in trials])
    if not any(each.state == "ended" for each in trials) or np.isnan(units).all():
        return None
    places = max(1, search.places)
    operations = places * (to_start + repeats[1]) + len(trials) * sum(each.state != "ended" for each in trials)
    draws = int(max(FEWEST_DRAWS, min(draws, MOST_OPERATIONS / max(1, operations))))
    ends = Ends(trials, draws, random, whole=WHOLE if search.knows_length else None)
    weights = np.where(np.isnan(units), 0.0, ends.weights)
    rates = units[_choose(weights, to_start + repeats[1], random)]
    left = []
    for each, unit in zip(trials, units, strict=True):
        if each.state != "ended":
            own = units[_choose(weights, 1, random)][:, 0] if math.isnan(unit) else np.full(draws, unit)
            before = start_s if math.isnan(unit) else 0.0
            left.append(before + own * np.maximum(ends.after(each.progress) - each.progress, 0.0))
    new = ends.new(to_start) * rates[:, :to_start] + start_s
    free, held = _placed(left, new, np.zeros((draws, places)), search.limit_s)
    if repeats[1]:
        free[:] = free.max(axis=1, keepdims=True)  # they begin when the search has ended
        wanted = random.integers(repeats[0], repeats[1] + 1, draws)
        whole = np.stack([ends.longest() for _ in range(repeats[1])], axis=1) * rates[:, to_start:] + start_s
        whole = np.where(np.arange(repeats[1]) < wanted[:, None], whole, 0.0)
        free, more = _placed([], whole, free, search.limit_s)
        held += more
    return RemainingWork(free.max(axis=1), held)


def _start_s(trials: Sequence[Course]) -> float:
    """Return the seconds from the assignment of workers to the first step: the median over trials with two reports."""
    found = []
    for each in trials:
        if each.first is not None and each.progress > each.first[0]:
            unit = (each.held_s - each.first[1]) / (each.progress - each.first[0])
            found.append(max(0.0, each.first[1] - unit * each.first[0]))
    return float(np.median(found)) if found else 0.0


def _unit_s(trial: Course, start_s: float) -> float:
    """Return the seconds that a trial takes for a progress of 1; NaN before its first report."""
    if trial.progress <= 0 or trial.held_s <= 0:
        return math.nan
    return max(trial.held_s - start_s, 0.1 * trial.held_s) / trial.progress


class Ends:
    """Distribution of the progress at which trials end; each method draws from it."""

    def __init__(self, trials: Sequence[Course], draws: int, random: np.random.Generator, whole: float | None):
        """
        Args:
            trials: Trials so far, in the order of their starts.
            draws: Number of draws at a time.
            random: Random numbers.
            whole: Progress at which a complete trial ends; None if unknown.
        """
        progress = np.array([each.progress for each in trials])
        ended = np.array([each.state == "ended" for each in trials])
        age = np.arange(len(trials))[::-1]
        self.weights = random.exponential(size=(draws, len(trials))) * 0.5 ** (age / (HALF_LIFE * len(trials)))
        self._random, self._whole = random, whole
        stopped = ended if whole is None else ended & (progress < whole)
        self._tail = self._tail_index(progress, stopped)
        order = np.lexsort((~ended, progress))  # of equal ones those that ended come first
        self._progress, sorted_weights = progress[order], self.weights[:, order]
        at_risk = sorted_weights[:, ::-1].cumsum(axis=1)[:, ::-1]
        hazard = np.where(ended[order], sorted_weights / np.maximum(at_risk, 1e-300), 0.0)
        survival = np.cumprod(1 - hazard, axis=1)
        self._mass = np.concatenate([np.ones((draws, 1)), survival[:, :-1]], axis=1) - survival
        self._beyond = survival[:, -1]

    def after(self, progress: float) -> Floats:
        """Draw an end for a trial with this progress."""
        mass = np.where(self._progress > progress, self._mass, 0.0)
        cumulated = np.concatenate([mass, self._beyond[:, None]], axis=1).cumsum(axis=1)
        chosen = self._random.random(len(cumulated)) * cumulated[:, -1]
        index = (cumulated <= chosen[:, None]).sum(axis=1)
        seen = index < mass.shape[1]
        drawn = self._progress[np.where(seen, index, 0)]
        return np.where(seen, drawn, self._later(max(progress, float(self._progress[-1]))))

    def new(self, count: int) -> Floats:
        """Draw the ends of further trials: a row for each draw, a column for each trial."""
        mass = np.concatenate([np.where(self._progress > 0, self._mass, 0.0), self._beyond[:, None]], axis=1)
        index = _choose(mass, count, self._random)
        seen = index < len(self._progress)
        later = np.stack([self._later(float(self._progress[-1])) for _ in range(count)], axis=1) if count else index
        return np.where(seen, self._progress[np.where(seen, index, 0)], later)

    def longest(self) -> Floats:
        """Draw an end for a trial that nothing stops."""
        return (
            np.full(len(self._mass), self._whole) if self._whole is not None else self.after(float(self._progress[-1]))
        )

    def _later(self, progress: float) -> Floats:
        """Draw an end beyond the observed ones, with a constant rate of stops per factor of progress until the training
        is complete."""
        factor = np.exp(np.minimum(self._random.exponential(size=len(self._tail)) / self._tail, 50.0))
        if self._whole is None:
            return progress * np.minimum(factor, 1 + self._random.exponential(size=len(self._tail)))
        return np.minimum(progress * factor, self._whole) if progress > 0 else np.full(len(factor), self._whole)

    def _tail_index(self, progress: Floats, stopped: npt.NDArray[np.bool_]) -> Floats:
        """Draw the rate of stops, per factor e of progress, from its posterior."""
        began = progress[progress > 0]
        if not len(began):
            return np.full(len(self.weights), 1e-9)
        passed = FIRST_DECISION + np.log(np.maximum(progress, began.min()) / began.min())
        weights = self.weights / self.weights.mean(axis=1, keepdims=True)
        events, exposure = weights @ stopped, weights @ passed
        found: Floats = np.maximum(self._random.gamma(np.maximum(events, 1e-6)), 1e-9) / np.maximum(exposure, 1e-3)
        return found


def _choose(weights: Floats, count: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw ``count`` trials by weight, for each row of the weights."""
    cumulated = weights.cumsum(axis=1)
    chosen = random.random((len(weights), count)) * cumulated[:, -1:]
    return np.stack(
        [np.searchsorted(row, each, side="right") for row, each in zip(cumulated, chosen, strict=True)]
    ).clip(max=weights.shape[1] - 1)


def _placed(left: Sequence[Floats], trainings: Floats, free: Floats, limit_s: float) -> tuple[Floats, Floats]:
    """Assign each trial to the place that becomes free first, until all have ended or the budget is spent.

    Args:
        left: Seconds that are left of each trial that has begun, by draw.
        trainings: Seconds of each further training; those without a place are not started.
        free: Time from which on each place is free; it is changed.
        limit_s: Time at which the budget ends.

    Returns:
        ``free``, and the seconds for which places were held.
    """
    held, rows = np.zeros(len(free)), np.arange(len(free))
    for index in range(len(left) + trainings.shape[1]):
        length = trainings[:, index - len(left)] if index >= len(left) else left[index]
        place = free.argmin(axis=1)
        begin = free[rows, place]
        trains = np.clip(limit_s - begin, 0.0, length)
        held += trains
        free[rows, place] = begin + trains
    return free, held
