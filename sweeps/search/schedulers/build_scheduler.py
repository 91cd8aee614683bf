"""Schedulers, built from their config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from sweeps.compose import Composition
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
from sweeps.search.schedulers.asha import Asha
from sweeps.search.schedulers.decisions import DecisionLog
from sweeps.search.schedulers.hyperband import Hyperband
from sweeps.search.schedulers.mutable_params import mutated_paths
from sweeps.search.schedulers.mutation import Mutation
from sweeps.search.schedulers.pb2 import Explore, PopulationBasedBandits
from sweeps.search.schedulers.pbt import PopulationBasedTraining, SavedStates
from sweeps.search.schedulers.scheduler import Scheduler
from sweeps.search.schedulers.trial_length import hyperband_range, longest_trial
from sweeps.space.distributions import Lookup, Space


def build_scheduler(
    composition: Composition,
    space: Space,
    *,
    lookup: Lookup,
    validate: Callable[[Any], object],
    decisions: DecisionLog,
    num_trials: Callable[[], int],
    remaining_s: Callable[[], float],
    announce: Callable[[str], None] = lambda text: None,
    states: SavedStates | None = None,
    explore: Explore | None = None,
) -> Scheduler:
    """Build the scheduler of a sweep. Of several objectives only ``freeze_thaw`` and ``auto`` use all.

    Args:
        composition: The sweep's config, checked.
        space: The sweep's space.
        lookup: Returns the config's own value at a path.
        validate: Raises ``ConfigError`` for a point that cannot be run.
        decisions: Decisions of earlier sessions, and where this session's are recorded.
        num_trials: Number of trials that there will be, which may be raised.
        remaining_s: Returns the seconds that are left of the search's budgets; infinity if it has none.
        announce: Tells people in a line what ``auto`` has chosen.
        states: The saved states of all trials, from which those of a population continue; default: there are none.
        explore: The model of PB2; default: it knows nothing.
    """
    config, search = composition.config, composition.config.search
    objectives = Objectives.of(search)
    match search.scheduler:
        case AshaScheduler() as asha:
            return Asha(asha.resource, asha.grace, asha.eta, asha.brackets, config.seed, objectives, decisions)
        case HyperbandScheduler() as hyperband:
            grace, longest = hyperband_range(composition, space, lookup)
            assert grace is not None and longest is not None
            return Hyperband(hyperband.resource, grace, longest, hyperband.eta, objectives, decisions)
        case AutomaticScheduler() | FreezeThawScheduler():
            return _freeze_thaw(composition, space, lookup, decisions, remaining_s, announce)
        case NoScheduler():
            return Scheduler(objectives, decisions)
        case PBTScheduler() | PB2Scheduler() as population:
            changing = mutated_paths(population, space)
            resampling = population.resample_probability if isinstance(population, PBTScheduler) else 0.0
            mutation = Mutation(space, changing, lookup, validate, resample_probability=resampling, seed=config.seed)
            arguments = population.resource, population.interval, population.quantile, mutation
            named: dict[str, Any] = {"objectives": objectives, "population": num_trials, "decisions": decisions}
            named |= {"states": states or SavedStates(), "seed": config.seed}
            if isinstance(population, PBTScheduler):
                return PopulationBasedTraining(*arguments, **named)
            ranges = {path: cast("FloatDistribution | IntDistribution", space[path]) for path in changing}
            return PopulationBasedBandits(*arguments, ranges=ranges, explore=explore, **named)


def _freeze_thaw(
    composition: Composition,
    space: Space,
    lookup: Lookup,
    decisions: DecisionLog,
    remaining_s: Callable[[], float],
    announce: Callable[[str], None],
) -> Scheduler:
    from sweeps.search.schedulers.automatic import Automatic  # it and FreezeThaw load much of SciPy
    from sweeps.search.schedulers.freeze_thaw import FreezeThaw

    search = composition.config.search
    config = cast("AutomaticScheduler | FreezeThawScheduler", search.scheduler)
    longest = config.longest or longest_trial(composition, space, config.resource, lookup)
    arguments = config.resource, config.grace, longest, config.eta, space, Objectives.of(search), decisions
    named: dict[str, Any] = {"lookup": lookup, "remaining_s": remaining_s}
    if isinstance(config, FreezeThawScheduler):
        return FreezeThaw(*arguments, **named)
    in_evaluations = config.resource == "evaluations"
    evaluations = longest if in_evaluations else longest_trial(composition, space, "evaluations", lookup)
    return Automatic(*arguments, evaluations=evaluations, announce=announce, **named)
