"""The scheduler of a plan, built from its config."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

from sweeps.config.objectives import Objectives
from sweeps.config.schedulers import (
    AshaScheduler,
    AutomaticScheduler,
    FreezeThawScheduler,
    HyperbandScheduler,
    NoScheduler,
    PB2Scheduler,
    PBTScheduler,
)
from sweeps.config.space import FloatDistribution, IntDistribution
from sweeps.plan.plan import Plan
from sweeps.search.schedulers.asha import Asha
from sweeps.search.schedulers.decisions import DecisionLog
from sweeps.search.schedulers.hyperband import Hyperband
from sweeps.search.schedulers.mutable_params import mutated_paths
from sweeps.search.schedulers.mutation import Mutation
from sweeps.search.schedulers.pb2 import Explore, PopulationBasedBandits
from sweeps.search.schedulers.pbt import PopulationBasedTraining, SavedStates
from sweeps.search.schedulers.scheduler import Scheduler
from sweeps.search.schedulers.trial_length import hyperband_range, longest_trial


def build_scheduler(
    plan: Plan,
    decisions: DecisionLog,
    *,
    num_trials: Callable[[], int] | None = None,
    remaining_s: Callable[[], float] = lambda: math.inf,
    announce: Callable[[str], None] = lambda text: None,
    states: SavedStates | None = None,
    explore: Explore | None = None,
) -> Scheduler:
    """Build the scheduler of a plan, and bring it to its state after the recorded decisions.

    Args:
        plan: The plan of a sweep, or of one of its stages.
        decisions: Decisions of earlier sessions, and where this session's are recorded.
        num_trials: Number of trials for which a population waits, which may change; default: as planned.
        remaining_s: Returns the seconds that are left of the search's budgets; infinity if it has none.
        announce: Shows users a line about what ``auto`` has chosen.
        states: The saved states of all trials, from which those of a population continue; default: there are none.
        explore: The model of PB2; default: no model.
    """
    search, seed, space, lookup = plan.config.search, plan.config.seed, plan.space, plan.points.lookup
    objectives = Objectives.of(search)
    match search.scheduler:
        case AshaScheduler() as asha:
            return Asha(asha.resource, asha.grace, asha.eta, asha.brackets, seed, objectives, decisions)
        case HyperbandScheduler() as hyperband:
            grace, longest = hyperband_range(plan.composition, space, lookup)
            assert grace is not None and longest is not None
            return Hyperband(hyperband.resource, grace, longest, hyperband.eta, objectives, decisions)
        case AutomaticScheduler() | FreezeThawScheduler() as freeze_thaw:
            return _freeze_thaw(plan, freeze_thaw, objectives, decisions, remaining_s, announce)
        case NoScheduler():
            return Scheduler(objectives, decisions)
        case PBTScheduler() | PB2Scheduler() as population:
            changing = mutated_paths(population, space)
            resampling = population.resample_probability if isinstance(population, PBTScheduler) else 0.0
            mutation = Mutation(space, changing, lookup, plan.check_point, resample_probability=resampling, seed=seed)
            arguments = population.resource, population.interval, population.quantile, mutation
            named: dict[str, Any] = {"objectives": objectives, "decisions": decisions, "seed": seed}
            named |= {"population": num_trials or (lambda: search.num_trials), "states": states or SavedStates()}
            if isinstance(population, PBTScheduler):
                return PopulationBasedTraining(*arguments, **named)
            ranges = {path: cast("FloatDistribution | IntDistribution", space[path]) for path in changing}
            return PopulationBasedBandits(*arguments, ranges=ranges, explore=explore, **named)


def _freeze_thaw(
    plan: Plan,
    config: AutomaticScheduler | FreezeThawScheduler,
    objectives: Objectives,
    decisions: DecisionLog,
    remaining_s: Callable[[], float],
    announce: Callable[[str], None],
) -> Scheduler:
    from sweeps.search.schedulers.automatic import Automatic  # it and FreezeThaw load much of SciPy
    from sweeps.search.schedulers.freeze_thaw import FreezeThaw

    longest = config.longest or longest_trial(plan.composition, plan.space, config.resource, plan.points.lookup)
    arguments = config.resource, config.grace, longest, config.eta, plan.space, objectives, decisions
    named: dict[str, Any] = {"lookup": plan.points.lookup, "remaining_s": remaining_s}
    if isinstance(config, FreezeThawScheduler):
        return FreezeThaw(*arguments, pauses=config.pauses, **named)
    return Automatic(*arguments, announce=announce, **named)
