"""Expected trials, workers, time and money of a planned sweep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from sweeps.config import SweepConfig
from sweeps.config.search import Stop
from sweeps.plan.plan import Plan
from sweeps.runtime.reservation import reserved_per_trial
from sweeps.search.schedulers.trial_length import trial_length
from sweeps.tracking.record import SweepRecord


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Work of a planned sweep, as far as its config tells."""

    trials: int
    """Largest number of trials."""
    steps: float | None
    """Optimizer steps of a complete trial; None if they depend on the data or on a user's function."""
    epochs: float | None
    """Passes of a complete trial over the data; None as above."""
    num_workers: int
    """Workers of a trial."""
    per_trial: dict[str, float]
    """Resources that Ray reserves for a trial, such as ``{"CPU": 2.0}``."""
    concurrent: int | None
    """Trials at a time; None if only the cluster can tell."""
    stop: Stop
    """Rules that may end the sweep earlier."""
    hourly_cost: float | None = None
    """Cost of a trial for an hour, in the dearest of its pools; None without prices."""


@dataclass(frozen=True, kw_only=True)
class PastSweep:
    """Measured work of an earlier sweep."""

    sweep: str
    trials: int
    """Trials that have ended."""
    trial_s: float
    """Mean seconds of a trial, pruned ones included."""
    wall_s: float
    steps: int
    """Optimizer steps of its longest trial; 0 if they were not counted."""


@dataclass(frozen=True, kw_only=True)
class ExpectedCost:
    """Range of what a sweep may take, by earlier ones. Money is in the currency of the prices."""

    wall_s: tuple[float, float]
    cost: tuple[float, float] | None
    """None without prices."""
    sweeps: list[str] = field(default_factory=list)
    """Names of the earlier sweeps."""


def workload_of(plan: Plan) -> Workload:
    """Return the work of a plan. Imports neither ray, torch nor mlflow."""
    config, fit = plan.config, plan.local_fit
    use_gpu = fit.use_gpu if fit is not None else config.scaling.use_gpu is True
    return Workload(
        trials=config.search.num_trials,
        steps=trial_length(config, "steps"),
        epochs=trial_length(config, "epochs"),
        num_workers=config.scaling.min_workers,
        per_trial=reserved_per_trial(config, use_gpu=use_gpu),
        concurrent=None if fit is None else fit.concurrent,
        stop=config.search.stop,
        hourly_cost=_hourly_cost(config, use_gpu=use_gpu),
    )


def past_of(record: SweepRecord) -> PastSweep | None:
    """Return the work of an earlier sweep; None if no trial of it has ended."""
    ended = [trial for trial in record.trials if trial.ended is not None]
    took = [seconds for trial in ended if (seconds := record.took(trial)) is not None]
    if not took or record.time.wall_s <= 0:
        return None
    return PastSweep(
        sweep=record.sweep,
        trials=len(took),
        trial_s=sum(took) / len(took),
        wall_s=record.time.wall_s,
        steps=max(trial.steps for trial in ended),
    )


def expected_cost(work: Workload, past: Sequence[PastSweep]) -> ExpectedCost | None:
    """Estimate time and money of a sweep from earlier sweeps of the same config.

    A trial is expected to take as long as theirs, in proportion to its optimizer steps where both are known; schedulers
    stopped some of theirs early, and are expected to do so again.

    Args:
        work: The planned sweep.
        past: Earlier sweeps of the same config.

    Returns:
        The lowest and the highest estimate; None without earlier sweeps.
    """
    if not past:
        return None
    lengths = [each.trial_s * _times_longer(work, each) for each in past]
    if work.concurrent is not None:
        walls = [work.trials * length / work.concurrent for length in lengths]
    else:  # as many at a time as then
        walls = [each.wall_s / each.trials * work.trials * _times_longer(work, each) for each in past]
    if work.stop.wall_hours is not None:
        walls = [min(wall, work.stop.wall_hours * 3600) for wall in walls]
    costs = [_cost(work, work.hourly_cost, length) for length in lengths] if work.hourly_cost is not None else []
    return ExpectedCost(
        wall_s=(min(walls), max(walls)),
        cost=(min(costs), max(costs)) if costs else None,
        sweeps=[each.sweep for each in past],
    )


def _times_longer(work: Workload, past: PastSweep) -> float:
    return work.steps / past.steps if work.steps and past.steps else 1.0


def _hourly_cost(config: SweepConfig, *, use_gpu: bool) -> float | None:
    if not config.is_priced:
        return None
    pools: list[str | None] = [*config.scaling.trial_pools] or [None]
    placed = [config.in_pool(name) for name in pools]
    return max(each.hourly_cost(reserved_per_trial(each, use_gpu=use_gpu)) for each in placed)


def _cost(work: Workload, per_hour: float, trial_s: float) -> float:
    """Cost of all trials, at most the budget."""
    limit = work.stop.cost.limit if work.stop.cost is not None else math.inf
    return min(work.trials * trial_s * per_hour / 3600, limit)
