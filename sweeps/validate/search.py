"""Checks of ``search``: samplers, schedulers, stopping rules and objectives that do not go together, or not with the
space, the task or the cluster. Nothing here imports what searches."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sweeps.compose import Composition
from sweeps.config import SweepConfig
from sweeps.config.search import (
    AshaScheduler,
    HyperbandScheduler,
    MedianScheduler,
    NSGASampler,
    PB2Scheduler,
    PBTScheduler,
    Resource,
    Search,
)
from sweeps.config.space import ConstantDistribution, FloatDistribution, IntDistribution
from sweeps.errors import ConfigError
from sweeps.runtime.placement import local_resources
from sweeps.search.schedulers.mutable_params import MUTABLE, is_mutable, mutated_paths
from sweeps.search.schedulers.trial_length import hyperband_range, longest_trial
from sweeps.space.distributions import Lookup, Space, contains, describe, grid_values
from sweeps.suggestions import did_you_mean

OF_WHOLE_TRIALS = ("tpe", "bohb", "gp", "cmaes", "nsga2", "nsga3")
"""Samplers that learn from trials; a population's change their values while they train."""
OF_ONE_OBJECTIVE = ("cmaes", "bohb")
SYSTEM_METRICS = ("system/cpu_percent", "system/memory_mib", "system/gpu_memory_mib")
"""What workers report of their process, whatever the task."""
COUNTED: dict[str, tuple[Resource, ...]] = {
    "image_classification": ("evaluations", "steps", "epochs", "samples", "seconds"),
    "function": ("evaluations", "steps", "seconds"),
}
"""Units in which a task counts its progress, where it does not in all of them."""
SWEEP_NAME = re.compile(r"[A-Za-z0-9._-]{1,120}")


def search_mistakes(composition: Composition, space: Space, lookup: Lookup) -> Iterator[str]:
    """One line each, with key, value and fix."""
    config = composition.config
    yield from _metrics(config)
    yield from _objectives(config.search)
    yield from _sampler(config.search, space, lookup)
    yield from _stop(config)
    yield from _priors(space)
    yield from _warm_start(config.search)
    scheduler = config.search.scheduler
    if isinstance(scheduler, PBTScheduler | PB2Scheduler):
        yield from _population(config.search, scheduler, space)
    if scheduler.kind != "none":
        yield from _resource(composition, space, lookup)


def search_notes(composition: Composition, space: Space, lookup: Lookup) -> Iterator[str]:
    """What is allowed, and may not be what was meant: for the dry run."""
    search = composition.config.search
    sampler, scheduler = search.sampler, search.scheduler
    if isinstance(sampler, NSGASampler) and sampler.population > search.num_trials:
        yield (
            f"search.sampler.population={sampler.population} is more than search.num_trials={search.num_trials}: the "
            "first generation does not end, and all points are random"
        )
    if sampler.kind == "bohb" and scheduler.kind == "none":
        yield "search.sampler.kind=bohb learns from a scheduler's rungs; with search.scheduler.kind=none it is tpe"
    if isinstance(scheduler, AshaScheduler | MedianScheduler):
        length = longest_trial(composition, space, scheduler.resource, lookup)
        if length is not None and scheduler.grace == length:
            yield (
                f"search.scheduler.grace={scheduler.grace:g} is all that a trial has ({length:g} "
                f"{scheduler.resource}), so none is stopped early"
            )
    for path in space:
        if space.context(path, lookup) is None:
            yield f"{path} is never searched, since what it depends on does not have such a value"


def _metrics(config: SweepConfig) -> Iterator[str]:
    known = config.task.metrics
    if not known:
        return  # a task that does not say what it reports
    for metric in config.search.metrics:
        if metric not in known:
            yield (
                f"search.metric={metric}: the task {config.task.kind} does not report it; it reports {', '.join(known)}"
            )
    for metric in config.search.limits:
        if metric not in (*known, *SYSTEM_METRICS):
            yield (
                f"search.limits.{metric}: neither the task {config.task.kind} nor a worker reports it"
                f"{did_you_mean(metric, [*known, *SYSTEM_METRICS])}"
            )


def _objectives(search: Search) -> Iterator[str]:
    if len(search.metrics) == 1:
        return
    objectives = " and ".join(search.metrics)
    if search.sampler.kind in OF_ONE_OBJECTIVE:
        yield (
            f"search.sampler.kind={search.sampler.kind}: is for one objective, and there is {objectives}; use "
            "search/sampler=nsga2, tpe or gp, or one search.metric"
        )
    for rule in ("target", "plateau", "expected_improvement"):
        if getattr(search.stop, rule) is not None:
            yield (
                f"search.stop.{rule}: is for one objective, and there is {objectives}; drop it, or name one "
                "search.metric (search.stop.wall_hours, gpu_hours and cost work for several)"
            )


def _sampler(search: Search, space: Space, lookup: Lookup) -> Iterator[str]:
    if search.sampler.kind == "brute_force":
        for path in space:
            if space.context(path, lookup) is not None:
                try:
                    grid_values(path, space[path])
                except ConfigError as error:
                    yield str(error)
    elif search.sampler.kind == "grid":
        try:
            space.grid(lookup)
        except ConfigError as error:
            yield str(error)


def _population(search: Search, scheduler: PBTScheduler | PB2Scheduler, space: Space) -> Iterator[str]:
    kind = scheduler.kind
    if search.sampler.kind in OF_WHOLE_TRIALS:
        yield (
            f"search.sampler.kind={search.sampler.kind}: learns from whole trials, and search.scheduler.kind={kind} "
            "changes a trial's values while it trains; use search/sampler=random or qmc"
        )
    if search.num_trials < 2:
        yield (
            f"search.num_trials={search.num_trials}: is the size of the population for search.scheduler.kind={kind}; "
            "give it 2 or more, so that one can learn from another"
        )
    for index, path in enumerate(scheduler.mutate or []):
        problem = _why_fixed(kind, path, space)
        if problem is not None:
            yield f"search.scheduler.mutate.{index}={path}: {problem}"
    if not mutated_paths(scheduler, space):
        yield (
            f"search.scheduler.kind={kind}: the space has nothing that can change in the middle of a training; search "
            f"one of {', '.join(MUTABLE)}, or name your own arguments in search.scheduler.mutate"
        )


def _why_fixed(kind: str, path: str, space: Space) -> str | None:
    """Why a parameter cannot change in the middle of a training; None if it can."""
    if path not in space.distributions:
        return f"the space has no such path{did_you_mean(path, space)}"
    distribution, of_numbers = space[path], isinstance(space[path], FloatDistribution | IntDistribution)
    problems = {
        f"cannot change in the middle of a training; what can is {', '.join(MUTABLE)}": not is_mutable(path),
        "exists only under a condition, which a change elsewhere may end; drop it here, or its `when`": bool(
            distribution.when
        ),
        "decides whether other parameters exist, which cannot come and go; drop it here": any(
            path in space[other].when for other in space
        ),
        "is constant; drop it here": isinstance(distribution, ConstantDistribution),
        f"is {distribution.type}, and pb2 changes ranges of numbers only; drop it here, or use pbt": kind == "pb2"
        and not of_numbers,
    }
    return next((problem for problem, is_so in problems.items() if is_so), None)


def _resource(composition: Composition, space: Space, lookup: Lookup) -> Iterator[str]:
    """Whether a trial ever comes to where the scheduler decides."""
    config, scheduler = composition.config, composition.config.search.scheduler
    assert scheduler.kind != "none"
    resource = scheduler.resource
    counted = COUNTED.get(config.task.kind)
    if counted is not None and resource not in counted:
        yield (
            f"search.scheduler.resource={resource}: the task {config.task.kind} counts none; use "
            f"{', '.join(counted[:-1])} or {counted[-1]}"
        )
        return
    length = longest_trial(composition, space, resource, lookup)
    if isinstance(scheduler, HyperbandScheduler):
        grace, longest = hyperband_range(composition, space, lookup)
        if longest is None:
            yield (
                f"search.scheduler.longest: how many {resource} a trial takes does not follow from the config; "
                "give it, as in search.scheduler.longest=81"
            )
        elif grace is None:
            yield (
                f"search.scheduler.grace: how many {resource} a trial takes to its first evaluation does not follow "
                f"from the config; give it, as in search.scheduler.grace={longest / 27:g}"
            )
        elif longest < grace * scheduler.eta:
            whose = "search.scheduler.longest" if scheduler.longest else "a trial's length"
            yield (
                f"search.scheduler.eta={scheduler.eta:g}: {whose} of {longest:g} {resource} is less than so many times "
                f"what every trial gets ({grace:g}), so no trial is compared with another before its end; evaluate "
                "more often (train.eval_every), or lower eta or grace"
            )
        return
    name = "grace" if isinstance(scheduler, AshaScheduler | MedianScheduler) else "interval"
    first: float = getattr(scheduler, name)
    if length is not None and first > length:
        yield (
            f"search.scheduler.{name}={first:g}: a trial has {length:g} {resource}, so this scheduler would never act; "
            f"lower it, or lengthen the trials (train.max_steps), or use search/scheduler=none"
        )


def _stop(config: SweepConfig) -> Iterator[str]:
    stop = config.search.stop
    if config.scaling.use_gpu is not False and (
        config.cluster.address != "local" or local_resources(config).get("GPU", 0) > 0
    ):
        return
    if stop.gpu_hours is not None:
        yield (
            f"search.stop.gpu_hours={stop.gpu_hours:g}: trials hold no GPU, so it would never stop; "
            "use search.stop.wall_hours, or scaling.use_gpu=true where there are GPUs"
        )
    if stop.cost is not None and not stop.cost.per_cpu_hour:
        yield (
            f"search.stop.cost.per_gpu_hour={stop.cost.per_gpu_hour:g}: trials hold no GPU, so they cost nothing; "
            "give search.stop.cost.per_cpu_hour"
        )


def _priors(space: Space) -> Iterator[str]:
    for path in space:
        distribution = space[path]
        if isinstance(distribution, ConstantDistribution) or distribution.prior is None:
            continue
        value = distribution.prior.value
        if not contains(distribution, value):
            yield f"space.{path}.prior.value={value!r}: must be {describe(distribution)}, as the space says"


def _warm_start(search: Search) -> Iterator[str]:
    for index, name in enumerate(search.warm_start):
        if not SWEEP_NAME.fullmatch(name):
            yield (
                f"search.warm_start.{index}={name!r}: is no sweep's name (letters, digits, '.', '_' and '-'); "
                "python -m sweeps list shows them"
            )
        if name in search.warm_start[:index]:
            yield f"search.warm_start.{index}={name}: is named twice; drop one"
