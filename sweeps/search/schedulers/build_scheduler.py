"""Schedulers, built from their config."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from sweeps.compose import Composition
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
from sweeps.search.schedulers.pb2 import PopulationBasedBandits
from sweeps.search.schedulers.pbt import Exploit, PopulationBasedTraining
from sweeps.search.schedulers.trial_length import hyperband_range, longest_trial
from sweeps.space.distributions import Lookup, Space
from sweeps.storage.object_store import ObjectStore


def build_scheduler(
    composition: Composition,
    space: Space,
    *,
    lookup: Lookup,
    validate: Callable[[Any], object],
    trials: Path | ObjectStore,
    exploited: Callable[[Exploit], None],
    decisions: DecisionLog,
    num_trials: Callable[[], int],
    remaining_s: Callable[[], float],
    announce: Callable[[str], None] = lambda text: None,
) -> TrialScheduler:
    """Build the scheduler of a sweep. Tune sets its metric and mode; with several objectives these are the first, and
    only ``freeze_thaw`` and ``auto`` use the others.

    Args:
        composition: The sweep's config, checked.
        space: The sweep's space.
        lookup: Returns the config's own value at a path.
        validate: Raises ``ConfigError`` for a point that cannot be run.
        trials: Folder of all trials' checkpoints.
        exploited: Called with every trial that continues from another trial's state.
        decisions: Decisions of earlier sessions, and where this session's are recorded.
        num_trials: Number of trials that there will be, which may be raised.
        remaining_s: Returns the seconds that are left of the search's budgets; infinity if it has none.
        announce: Tells people in a line what ``auto`` has chosen.
    """
    config, search = composition.config, composition.config.search
    match search.scheduler:
        case AshaScheduler() as asha:
            return Asha(asha.resource, asha.grace, asha.eta, asha.brackets, config.seed, decisions)
        case HyperbandScheduler() as hyperband:
            grace, longest = hyperband_range(composition, space, lookup)
            assert grace is not None and longest is not None
            return Hyperband(hyperband.resource, grace, longest, hyperband.eta, decisions)
        case AutomaticScheduler() | FreezeThawScheduler():
            return _freeze_thaw(composition, space, lookup, decisions, remaining_s, announce)
        case NoScheduler():
            return FIFOScheduler()  # type: ignore[no-untyped-call]
        case PBTScheduler() | PB2Scheduler() as population:
            changing = mutated_paths(population, space)
            resampling = population.resample_probability if isinstance(population, PBTScheduler) else 0.0
            mutation = Mutation(space, changing, lookup, validate, resample_probability=resampling, seed=config.seed)
            named: dict[str, Any] = {"population": num_trials, "trials": trials, "exploited": exploited}
            return _population(population, space, changing, mutation, seed=config.seed, decisions=decisions, **named)


def _freeze_thaw(
    composition: Composition,
    space: Space,
    lookup: Lookup,
    decisions: DecisionLog,
    remaining_s: Callable[[], float],
    announce: Callable[[str], None],
) -> TrialScheduler:
    from sweeps.search.schedulers.automatic import Automatic  # it and FreezeThaw load much of SciPy
    from sweeps.search.schedulers.freeze_thaw import FreezeThaw

    search = composition.config.search
    config = cast("AutomaticScheduler | FreezeThawScheduler", search.scheduler)
    longest = config.longest or longest_trial(composition, space, config.resource, lookup)
    arguments = config.resource, config.grace, longest, config.eta, space, decisions
    further = dict(zip(search.metrics[1:], search.modes[1:], strict=True))
    named: dict[str, Any] = {"further": further, "lookup": lookup, "remaining_s": remaining_s}
    if isinstance(config, FreezeThawScheduler):
        return FreezeThaw(*arguments, **named)
    in_evaluations = config.resource == "evaluations"
    evaluations = longest if in_evaluations else longest_trial(composition, space, "evaluations", lookup)
    return Automatic(*arguments, evaluations=evaluations, announce=announce, **named)


def _population(
    config: PBTScheduler | PB2Scheduler, space: Space, changing: Sequence[str], mutation: Mutation, **named: Any
) -> TrialScheduler:
    arguments = config.resource, config.interval, config.quantile, mutation
    if isinstance(config, PBTScheduler):
        return PopulationBasedTraining(*arguments, **named)
    ranges = {path: cast("FloatDistribution | IntDistribution", space[path]) for path in changing}
    return PopulationBasedBandits(*arguments, ranges=ranges, **named)
