"""Simulation of a planned sweep against a table of learning curves."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import optuna
from optuna.trial import FrozenTrial

from sweeps.config.objectives import Objectives, Values
from sweeps.config.schedulers import AutomaticScheduler, FreezeThawScheduler, HyperbandScheduler
from sweeps.constants import NUMBER, REASON
from sweeps.plan.build_scheduler import build_scheduler
from sweeps.plan.plan import Plan
from sweeps.plan.searcher_options import searcher_options, stop_rule
from sweeps.runtime.reservation import reserved_per_trial
from sweeps.search.budget import Usage, remaining_s
from sweeps.search.reported_values import reported_values
from sweeps.search.schedulers.decisions import DecisionLog
from sweeps.search.schedulers.trial_length import longest_trial
from sweeps.search.study_search import ENDED, StudySearch
from sweeps.search.trial_ids import trial_id
from sweeps.simulate.inputs import Inputs
from sweeps.simulate.lane_rates import LaneRates
from sweeps.simulate.recorded_table import CurveTable
from sweeps.simulate.regret import Improvement, Scale
from sweeps.simulate.simulation import Outcome, Simulation
from sweeps.simulate.surrogate import ForestCurve, NearestCurve, SurrogateError
from sweeps.tracking.record import STATES, MlflowIds, SweepRecord, SweepTime, TrialRecord

Between = Literal["forest", "nearest"]
"""Source of the curve for a point that the table lacks: a forest's prediction, or the nearest configuration's curve."""
WORKERS = 4
"""Simulated worker groups, unless the command or ``search.max_concurrent`` sets their number."""


@dataclass(frozen=True)
class SimulatedSweep:
    """A search that was simulated with one seed."""

    seed: int
    record: SweepRecord
    """The sweep in the form of its record, without runs in MLflow and checkpoints."""
    improvements: list[Improvement]
    """Each new best value of the first objective, with its time."""
    ended_because: str | None

    def regret(self, time_s: float) -> float | None:
        """Return the regret of the best value at a simulated time; None before the first value."""
        return next((each.regret for each in reversed(self.improvements) if each.time_s <= time_s), None)


@dataclass(frozen=True)
class SimulationResult:
    """Simulated searches of one plan."""

    table: CurveTable
    workers: int
    """Number of worker groups."""
    lanes: int
    """Number of trials in each worker group."""
    is_alone: bool
    """Whether trials would share their workers, but are simulated without sharing, since their speeds are unknown."""
    between: Between
    error: SurrogateError | None
    """Error of predictions between the table's configurations; None if the curve of the nearest one is used, or too few
    were trained to the end."""
    scale: Scale
    """Values of the table by which regret is measured."""
    sweeps: list[SimulatedSweep]
    """Searches, one for each seed."""


def simulate(
    inputs: Inputs,
    *,
    workers: int | None = None,
    seeds: int = 1,
    between: Between = "forest",
    rates: LaneRates | None = None,
) -> SimulationResult:
    """Replay a sweep's search against recorded learning curves, in simulated time.

    Args:
        inputs: The sweep's plan, whose budgets of hours and cost count simulated time, and the table with the curves.
        workers: Number of worker groups, each of which runs one trial, or as many as share it; default: enough for
            ``search.max_concurrent`` trials, else 4.
        seeds: Number of searches: with the config's seed, and those after it.
        between: Answer for a point that the table does not have.
        rates: Speeds of ``scaling.trials_per_group`` trials that share their workers; None: none shares them.

    Raises:
        ConfigError: The speed of this number of trials is unknown.
    """
    plan, curves, search = inputs.plan, inputs.table, inputs.plan.config.search
    counted = {getattr(search.scheduler, "resource", "evaluations")} & curves.metric_names()
    predicted = list(dict.fromkeys([*search.metrics, *search.limits]))
    forest = ForestCurve(curves, plan.space, predicted, counted) if between == "forest" else None
    source = forest or NearestCurve(curves, plan.space)
    wanted = plan.config.scaling.trials_per_group
    lanes = 1 if rates is None else rates.number(wanted)
    at_once = workers * lanes if workers else search.max_concurrent or WORKERS * lanes
    groups, objectives, longest = math.ceil(at_once / lanes), inputs.objectives, _longest(plan, curves)
    simulated = []
    for seed in range(plan.config.seed, plan.config.seed + seeds):
        changes = {"seed": seed, **longest, **({"scaling.trials_per_group": lanes} if lanes != wanted else {})}
        seeded = replace(plan, composition=plan.composition.changed(changes))
        searcher, outcome = _search(seeded, source, at_once, groups, rates)
        record = _record(seeded, searcher.study, outcome, objectives, at_once)
        improvements = inputs.scale.improvements(_course(outcome, record, objectives))
        simulated.append(SimulatedSweep(seed, record, improvements, outcome.ended_because))
    is_alone = rates is None and wanted != 1
    error = forest.error if forest else None
    return SimulationResult(curves, groups, lanes, is_alone, between, error, inputs.scale, simulated)


def _longest(plan: Plan, curves: CurveTable) -> dict[str, float]:
    """Return the change that sets the scheduler's longest trial to the length of the table's curves, if the config's
    trials have another length: a simulated trial ends where its curve does."""
    scheduler = plan.config.search.scheduler
    if not isinstance(scheduler, AutomaticScheduler | FreezeThawScheduler | HyperbandScheduler) or scheduler.longest:
        return {}
    planned = longest_trial(plan.composition, plan.space, scheduler.resource, plan.points.lookup)
    if planned is None:  # learned from the trials, or in seconds
        return {}
    recorded = curves.length(scheduler.resource)
    return {} if math.isclose(planned, recorded) else {"search.scheduler.longest": recorded}


def _search(
    plan: Plan, source: ForestCurve | NearestCurve, at_once: int, groups: int, rates: LaneRates | None
) -> tuple[StudySearch, Outcome]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    search, used = plan.config.search, Usage()
    searcher = StudySearch(plan.space, enough=stop_rule(plan, lambda: search.stop), **searcher_options(plan))
    scheduler = build_scheduler(
        plan,
        DecisionLog(searcher.study),
        num_trials=lambda: searcher.num_awaited,
        remaining_s=lambda: remaining_s(search.stop, used),
    )
    needs = reserved_per_trial(plan.config, use_gpu=plan.config.scaling.use_gpu is True)
    holds = {**needs, "cost": plan.config.hourly_cost(needs)}
    simulation = Simulation(
        searcher,
        scheduler,
        source,
        at_once,
        stop=search.stop,
        holds=holds,
        usage=used,
        groups=groups,
        speed=LaneRates({1: 1.0}).speed if rates is None else rates.speed,
    )
    return searcher, simulation.run()


def _course(outcome: Outcome, record: SweepRecord, objectives: Objectives) -> list[tuple[float, float]]:
    """Return the times and values of the first objective in the reports of eligible trials; only in the last report of
    each, if that is the one that counts."""
    valid = {trial.trial for trial in record.trials if trial.may_be_best}
    found = [
        (report.trial, (report.time_s, values[0]))
        for report in outcome.reports
        if trial_id(report.trial) in valid and (values := objectives.values(report.metrics)) is not None
    ]
    return sorted(dict(found).values()) if objectives.last_counts else [each for _, each in found]


def _record(plan: Plan, study: optuna.Study, outcome: Outcome, objectives: Objectives, workers: int) -> SweepRecord:
    """Return the sweep in the form of its record in MLflow."""
    started = [trial for trial in study.get_trials(deepcopy=False) if NUMBER in trial.user_attrs]
    trials = [_trial(plan, trial, outcome, objectives) for trial in started]
    counts = {state: sum(trial.state == state for trial in trials) for state in STATES}
    valid = {each.trial: each.all_values() for each in trials if each.all_values() and each.may_be_best}
    by_id = {each.trial: each for each in trials}
    return SweepRecord(
        sweep=plan.name,
        status="finished" if counts["finished"] else "failed",
        metrics=objectives.metrics,
        modes=objectives.modes,
        counts=counts,
        front=[by_id[trial] for trial in objectives.front(valid)],
        mlflow=MlflowIds(tracking_uri="", experiment_id="", run_id=""),
        trials=trials,
        time=SweepTime(
            wall_s=outcome.wall_s,
            train_s=outcome.train_s,
            goodput=min(1.0, outcome.train_s / max(outcome.wall_s * workers, 1e-9)),
        ),
        conf=plan.composition.conf,
        started=0.0,
        command=plan.command,
        planned=plan.config.search.num_trials,
    )


def _trial(plan: Plan, trial: FrozenTrial, outcome: Outcome, objectives: Objectives) -> TrialRecord:
    number = trial.user_attrs[NUMBER]
    reports = reported_values(trial)
    best: tuple[int, Values] | None = None
    for step, values in sorted(reports.items()):
        if objectives.improves(values, best[1] if best else None):
            best = step, values
    began, ended = outcome.seconds[number]
    broken = [name for name, excess in trial.constraints.items() if excess > 0]
    return TrialRecord(
        trial=trial_id(number),
        state=ENDED.get(trial.state, "stopped"),  # by a budget
        value=None if best is None else best[1][0],
        values=best[1] if best and len(best[1]) > 1 else (),
        best_step=None if best is None else best[0],
        violation=f"not {broken[0]}" if broken else None,
        params=plan.space.sample(trial, plan.points.lookup),
        run_id="",
        steps=max(reports, default=0),
        attempts=1,
        started=began,
        ended=ended,
        error=trial.user_attrs.get(REASON),
    )
