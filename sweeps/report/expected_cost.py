"""Expected trials, workers, time and money of a planned sweep."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import fmean
from typing import Any

from sweeps.config import SweepConfig
from sweeps.config.search import Stop
from sweeps.errors import UserError
from sweeps.plan.plan import Plan
from sweeps.report.formatting import duration
from sweeps.report.held_workers import held_s, lanes_found
from sweeps.runtime.reservation import reserved_per_trial
from sweeps.search.confirmation_race import MAX_RUNS, MIN_RUNS
from sweeps.search.schedulers.trial_length import trial_length
from sweeps.texts.uri_passwords import redact_uri
from sweeps.tracking.reader import list_sweeps, load_sweep
from sweeps.tracking.record import SweepRecord, SweepSummary
from sweeps.tracking.values import short

MOST = 3
"""Maximum number of earlier sweeps, the newest ones."""
USED = ("finished", "stopped")
"""Statuses of earlier sweeps that estimates are based on."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Work of a planned sweep, as far as its config determines it."""

    trials: int
    """Maximum number of trials."""
    steps: float | None
    """Optimizer steps of a complete trial; None if they depend on the data or on a user's function."""
    epochs: float | None
    """Passes of a complete trial over the data; None in the same cases as ``steps``."""
    num_workers: int
    """Workers of a trial."""
    per_trial: dict[str, float]
    """Resources that Ray reserves for a trial, such as ``{"CPU": 2.0}``."""
    concurrent: int | None
    """Trials at a time; None if only the cluster, or a measurement of trials that share workers, determines it."""
    stop: Stop
    """Rules that may end the sweep earlier."""
    hourly_cost: float | None = None
    """Cost of a trial per hour, in the most expensive of its pools; None without prices."""
    finds_lanes: bool = False
    """Whether a measurement determines how many trials share the resources of ``per_trial``."""
    repeats: tuple[int, int] = (0, 0)
    """Minimum and maximum number of further trainings that confirm the winner."""
    stages: tuple[Workload, ...] = ()
    """Work of each preceding stage."""


@dataclass(frozen=True, kw_only=True)
class PastSweep:
    """Measured trials, steps and times of an earlier sweep."""

    sweep: str
    trials: int
    """Trials that have ended."""
    trial_s: float
    """Mean seconds for which a trial held its workers, including pruned ones."""
    wall_s: float
    """Seconds of the search, without its stages and the repeats that confirmed its winner."""
    steps: int
    """Optimizer steps of the sweep's longest trial; 0 if they were not counted."""
    whole_s: float | None = None
    """Mean seconds of a trial that was not stopped; None if all were."""
    shared_by: int = 1
    """Measured number of trials that share a worker group."""


@dataclass(frozen=True, kw_only=True)
class ExpectedCost:
    """Range of a planned sweep's time and cost, estimated from earlier sweeps. Money is in the currency of the
    prices."""

    wall_s: tuple[float, float]
    cost: tuple[float, float] | None
    """Range of the cost; None without prices."""
    gpu_hours: tuple[float, float] | None = None
    """Range of GPU-hours; None if trials use no GPU."""
    sweeps: list[str] = field(default_factory=list)
    """Names of the earlier sweeps."""
    stages: list[ExpectedCost] = field(default_factory=list)
    """Expected costs of the stages before the search."""

    def describe(self) -> str:
        """Describe the ranges: ``about 10m 00s to 12m 00s, 0.3 to 0.4 GPU-hours, as first took``."""
        texts = [f"about {_between(*map(duration, self.wall_s))}"]
        if self.gpu_hours is not None:
            texts.append(f"{_between(*map(short, self.gpu_hours))} GPU-hours")
        if self.cost is not None:
            texts.append(f"cost {_between(*(f'{each:.2f}' for each in self.cost))}")
        texts += [
            f"{_between(*map(duration, each.wall_s))} of it for stage {number}"
            for number, each in enumerate(self.stages, start=1)
        ]
        return f"{', '.join(texts)}, as {', '.join(self.sweeps)} took"

    def as_json(self) -> dict[str, Any]:
        """Return the ranges in the form of ``--json``."""
        return {
            "wall_s": list(self.wall_s),
            "gpu_hours": None if self.gpu_hours is None else list(self.gpu_hours),
            "cost": None if self.cost is None else list(self.cost),
            "sweeps": self.sweeps,
            **({"stages": [each.as_json() for each in self.stages]} if self.stages else {}),
        }


def workload_of(plan: Plan) -> Workload:
    """Return the work of a plan. Imports neither ray, torch nor mlflow."""
    config, fit = plan.config, plan.local_fit
    finds_lanes = config.scaling.trials_per_group == "auto"
    use_gpu = fit.use_gpu if fit is not None else config.scaling.use_gpu is True
    return Workload(
        trials=plan.num_trials,
        steps=trial_length(config, "steps"),
        epochs=trial_length(config, "epochs"),
        num_workers=config.scaling.min_workers,
        per_trial=reserved_per_trial(config, use_gpu=use_gpu),
        concurrent=None if fit is None or finds_lanes else fit.concurrent,
        stop=config.search.stop,
        hourly_cost=_hourly_cost(config, use_gpu=use_gpu),
        finds_lanes=finds_lanes,
        repeats=(MIN_RUNS * config.search.confirm, MAX_RUNS * config.search.confirm),
        stages=() if plan.stage is not None else tuple(workload_of(plan.in_stage(each.number)) for each in plan.stages),
    )


def past_of(record: SweepRecord) -> PastSweep | None:
    """Return the work of an earlier sweep; None if none of its trials has ended."""
    ended = [trial for trial in record.trials if trial.ended is not None]
    held = {trial.trial: seconds for trial in ended if (seconds := held_s(record, trial)) is not None}
    whole = [held[trial.trial] for trial in ended if trial.state == "finished" and trial.trial in held]
    took, others = [*held.values()], sum(held_s(record, trial) or 0.0 for trial in [*record.staged, *record.repeats])
    if not took or record.time.wall_s <= 0:
        return None
    return PastSweep(
        sweep=record.sweep,
        trials=len(took),
        trial_s=sum(took) / len(took),
        wall_s=record.time.wall_s * (sum(took) / (sum(took) + others) if others else 1.0),
        steps=max(trial.steps for trial in ended),
        whole_s=fmean(whole) if whole else None,
        shared_by=lanes_found(record),
    )


def past_sweeps(
    summaries: Iterable[SweepSummary], conf: str, read: Callable[[SweepSummary], PastSweep | None]
) -> list[PastSweep]:
    """Return the work of the newest ended sweeps of a config. The summaries are of all sweeps, the newest first;
    ``read`` returns the work of one, or None if no trial of it has ended."""
    ended = (each for each in summaries if each.conf == conf and each.status in USED)
    return [*islice(filter(None, map(read, ended)), MOST)]


def cost_by_earlier_sweeps(plan: Plan) -> tuple[ExpectedCost | None, str]:
    """Estimate what a planned sweep costs from earlier sweeps in its tracking store, and describe the estimate. Without
    an estimate, the description says what is missing."""
    uri = plan.config.tracking.uri
    try:
        past = past_sweeps(list_sweeps(uri), plan.composition.conf, lambda each: past_of(load_sweep(uri, each.sweep)))
    except UserError as error:
        return None, f"not known: {error}"
    expected = expected_cost(workload_of(plan), past)
    return expected, cost_in_words(plan, expected)


def expected_cost(work: Workload, past: Sequence[PastSweep]) -> ExpectedCost | None:
    """Estimate the range of a sweep's time and cost from earlier sweeps of the same config; None without earlier
    sweeps.

    A trial is expected to take as long as those of the earlier sweeps, in proportion to the optimizer steps if both
    numbers are known; trials that schedulers stopped early are included, since that is expected to happen again.
    """
    if not past:
        return None
    totals: list[float] = []  # seconds for which all trainings hold their workers, fewest and most repeats
    walls: list[float] = []
    for each in past:
        longer = _times_longer(work, each)
        trials = sum(part.trials * _times_longer(part, each) for part in (*work.stages, work))  # each of its own length
        searched, whole_s = trials * each.trial_s, (each.whole_s or each.trial_s) * longer
        shared_by = each.shared_by if work.finds_lanes else 1
        # If the config does not determine the number of concurrent trials, it is that of the earlier sweep.
        search_s = each.wall_s / each.trials * trials
        concurrent = work.concurrent or (max(1.0, searched / search_s) if search_s else 1.0)
        for repeats in work.repeats:
            totals.append((searched + repeats * whole_s) / shared_by)
            walls.append(
                (search_s if work.concurrent is None else searched / concurrent) + repeats * whole_s / concurrent
            )
    if work.stop.wall_hours is not None:
        walls = [min(wall, work.stop.wall_hours * 3600) for wall in walls]
    budget = work.stop.cost.limit if work.stop.cost is not None else math.inf
    costs = [] if work.hourly_cost is None else [min(total * work.hourly_cost / 3600, budget) for total in totals]
    gpus = work.per_trial.get("GPU", 0.0)
    hours = [min(gpus * total / 3600, work.stop.gpu_hours or math.inf) for total in totals] if gpus else []
    return ExpectedCost(
        wall_s=(min(walls), max(walls)),
        cost=(min(costs), max(costs)) if costs else None,
        gpu_hours=(min(hours), max(hours)) if hours else None,
        sweeps=[each.sweep for each in past],
        stages=[found for part in work.stages if (found := expected_cost(part, past)) is not None],
    )


def cost_in_words(plan: Plan, expected: ExpectedCost | None) -> str:
    """Describe the expected cost of a planned sweep, or what is missing to estimate it."""
    if expected is not None:
        return expected.describe()
    conf, store = plan.composition.conf, redact_uri(plan.config.tracking.uri)
    return (
        f"unknown: no sweep of conf={conf} has ended in {store}; measure one trial with search.num_trials=1, then "
        "continue with `extend`"
    )


def _between(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _times_longer(work: Workload, past: PastSweep) -> float:
    return work.steps / past.steps if work.steps and past.steps else 1.0


def _hourly_cost(config: SweepConfig, *, use_gpu: bool) -> float | None:
    if not config.is_priced:
        return None
    pools: list[str | None] = [*config.scaling.trial_pools] or [None]
    placed = [config.in_pool(name) for name in pools]
    return max(each.hourly_cost(reserved_per_trial(each, use_gpu=use_gpu)) for each in placed)
