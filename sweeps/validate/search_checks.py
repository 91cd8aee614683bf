"""Checks of the section ``search``: sampler, scheduler, stop rules and objectives must fit each other, the space, the
task and the cluster. Imports none of the search libraries."""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.compose import Composition
from sweeps.config import SweepConfig, UserTask
from sweeps.config.schedulers import (
    AshaScheduler,
    AutomaticScheduler,
    FreezeThawScheduler,
    HyperbandScheduler,
    PB2Scheduler,
    PBTScheduler,
    Resource,
)
from sweeps.config.search import Search
from sweeps.config.space import CategoricalDistribution, ConstantDistribution, FloatDistribution, IntDistribution
from sweeps.constants import COST, GPU_HOURS, SEED
from sweeps.errors import ConfigError
from sweeps.runtime.node_resources import local_resources
from sweeps.search.schedulers.mutable_params import MUTABLE, is_mutable, mutated_paths
from sweeps.search.schedulers.trial_length import hyperband_range, longest_trial
from sweeps.space.distributions import boundary_values, contains, encode, expected, grid_values
from sweeps.space.space import Lookup, Space
from sweeps.texts.suggestions import did_you_mean
from sweeps.texts.wording import amount
from sweeps.validate.estimator_checks import known_metrics
from sweeps.validate.scaling_checks import pool_mistakes
from sweeps.validate.stage_checks import stage_mistakes
from sweeps.validate.warm_start_checks import warm_start_mistakes
from sweeps_train.config import ClassificationTask, CommandTask, EstimatorTask, TableData
from sweeps_train.reports.reported_metrics import SYSTEM_METRICS
from sweeps_train.tables.metrics import POSITIVE_METRICS

NEED_WHOLE_TRIALS = ("tpe", "bohb", "curves", "predicted", "gp", "cmaes", "nsga2", "nsga3")
"""Samplers that learn from whole trials, and are incompatible with schedulers that change a trial's values while it
trains."""
OF_RUNGS = AshaScheduler | AutomaticScheduler | FreezeThawScheduler
"""Schedulers that neither stop nor pause a trial before ``grace``."""
MOST_VALUES_OF_GP = 1_000_000
"""Maximum number of values of a parameter with steps that ``gp`` searches: it lists them for every suggestion, which
takes half a minute and 0.5 GB for this many."""
SINGLE_OBJECTIVE = ("cmaes", "bohb")
LOSS = "eval/loss"
DECIDES_LOSS = {"task.loss": "eval/rmse or eval/mae", "task.class_weight": "eval/log_loss"}
"""Keys of a task that change how ``eval/loss`` is computed, each with metrics that do not depend on it."""
OF_SAMPLES: tuple[Resource, ...] = ("evaluations", "steps", "epochs", "samples", "seconds")
COUNTED: dict[str, tuple[Resource, ...]] = {
    "image_classification": OF_SAMPLES,
    "classification": OF_SAMPLES,
    "regression": OF_SAMPLES,
    "command": ("evaluations", "steps", "seconds"),
    "estimator": ("evaluations", "steps", "seconds"),
    "function": ("evaluations", "steps", "seconds"),
}
"""Units of progress that a task counts, for tasks that lack some of them."""


def search_mistakes(composition: Composition, space: Space, lookup: Lookup, *, is_new: bool = True) -> Iterator[str]:
    """Yield one line for each mistake in the section ``search``, with key, value and fix; ``is_new``: see
    ``check_sweep``."""
    config = composition.config
    yield from _metrics(config)
    yield from pool_mistakes(config)
    yield from _objectives(config.search)
    if is_new or config.search.sampler.kind == "grid":  # 0.2 began brute_force over any number of values
        yield from _sampler(config.search, space, lookup)
    if is_new:
        yield from _same_texts(space)
        yield from _different_losses(config.search, space)
        yield from _held_out(config, space)
    yield from _confirm(config.search, space)
    yield from stage_mistakes(config.search)
    yield from _stop(config)
    yield from _priors(space)
    yield from warm_start_mistakes(config.search, space, lookup)
    scheduler = config.search.scheduler
    if isinstance(scheduler, PBTScheduler | PB2Scheduler):
        yield from _population(config.search, scheduler, space)
    if scheduler.kind != "none":
        yield from _resource(composition, space, lookup)


def _metrics(config: SweepConfig) -> Iterator[str]:
    task = config.task
    known = task.metrics or (known_metrics(task) if isinstance(task, EstimatorTask) else [])
    if not known:
        return  # the task does not declare its metrics
    if isinstance(task, ClassificationTask | EstimatorTask) and task.positive_class is not None:
        known = [*known, *POSITIVE_METRICS]
    reported = [*known, *SYSTEM_METRICS]
    of_cost = (COST, GPU_HOURS)  # `pool_mistakes` checks them
    for metric in config.search.metrics:
        if metric not in (*reported, *of_cost):
            fix = f"; it reports {', '.join(known)}, and its workers {', '.join(SYSTEM_METRICS)}"
            if isinstance(task, UserTask):
                program = "program" if isinstance(task, CommandTask) else "code"
                fix += f"; if the {program} reports {metric}, add it to task.metrics"
            fix += did_you_mean(metric, reported, listed=0)
            if metric in POSITIVE_METRICS and not isinstance(task, UserTask):
                fix = "; give task.positive_class"
            yield f"search.metric={metric}: the task {config.task.kind} does not report it{fix}"
    for metric in config.search.limits:
        if metric not in (*reported, *of_cost):
            yield (
                f"search.limits.{metric}: neither the task {config.task.kind} nor a worker reports it"
                f"{did_you_mean(metric, reported)}"
            )


def _different_losses(search: Search, space: Space) -> Iterator[str]:
    """Yield mistakes about searched values that change how the compared metric is computed."""
    for path, others in DECIDES_LOSS.items():
        searched = space.distributions.get(path)
        if LOSS in search.metrics and isinstance(searched, CategoricalDistribution) and len(searched.choices) > 1:
            yield (
                f"search.metric={LOSS}: is computed with {path}, which is searched, so that its values cannot be "
                f"compared; use {others}, or remove space.{path}"
            )


def _held_out(config: SweepConfig, space: Space) -> Iterator[str]:
    """Yield a mistake about a searched part of a table that is not held out, since a file or folds are."""
    path, data, task = "data.eval_fraction", config.data, config.task
    if path not in space or not isinstance(data, TableData):
        return
    by_folds = isinstance(task, EstimatorTask) and task.folds is not None
    other = "task.folds" if by_folds else "data.eval_path" if data.eval_path is not None else None
    if other is not None and not {"data", "task", other} & {*space}:
        yield f"space.{path}: {other} chooses the held-out rows, so it has no effect; remove it (~space.{path})"


def _objectives(search: Search) -> Iterator[str]:
    if len(search.metrics) == 1:
        return
    objectives = " and ".join(search.metrics)
    if search.sampler.kind in SINGLE_OBJECTIVE:
        yield (
            f"search.sampler.kind={search.sampler.kind}: is for one objective, and the sweep has {objectives}; use "
            "search/sampler=nsga2, tpe or gp, or one search.metric"
        )
    for rule in ("target", "plateau", "expected_improvement"):
        if getattr(search.stop, rule) is not None:
            yield (
                f"search.stop.{rule}: is for one objective, and the sweep has {objectives}; remove it, or name one "
                "search.metric (search.stop.wall_hours, gpu_hours and cost work for several)"
            )


def _confirm(search: Search, space: Space) -> Iterator[str]:
    key = f"search.confirm={search.confirm}"
    if not search.confirm:
        return
    if search.confirm == 1:
        yield f"{key}: the best trials are compared with each other; set 2 or more, or 0 for none"
    elif search.confirm > search.num_trials:
        yield f"{key}: is more than search.num_trials={search.num_trials}; set at most that"
    if len(search.metrics) > 1:
        yield (
            f"{key}: is for one objective, and the sweep has {' and '.join(search.metrics)}; set it to 0, or name one "
            "search.metric"
        )
    if search.copies_trials:
        yield (
            f"{key}: trials of search.scheduler.kind={search.scheduler.kind} continue from each other's states, so "
            "their parameters alone do not lead to their values again; set it to 0, or use search/scheduler=asha"
        )
    if SEED in space:
        yield f"{key}: its repeats differ by the seed, and the space has {SEED}; remove space.{SEED}, or set it to 0"


def _sampler(search: Search, space: Space, lookup: Lookup) -> Iterator[str]:
    if search.sampler.kind == "gp":
        yield from _too_many_for_gp(space)
    if search.sampler.kind not in ("brute_force", "grid"):
        return
    is_finite = True
    for path in space:
        if space.context(path, lookup) is not None:
            try:
                grid_values(path, space[path])
            except ConfigError as error:
                is_finite = False
                yield str(error)
    if search.sampler.kind == "grid" and is_finite:
        try:
            space.grid(lookup)
        except ConfigError as error:
            yield str(error)


def _same_texts(space: Space) -> Iterator[str]:
    for path, distribution in space.distributions.items():
        if not isinstance(distribution, CategoricalDistribution):
            continue
        described = {encode(choice) for choice in distribution.choices if isinstance(choice, list | dict)}
        for choice in distribution.choices:
            if isinstance(choice, str) and choice in described:  # Optuna gets the same text for both
                yield f"space.{path}: choices has {choice!r} both as text and as a list or mapping; keep one"


def _too_many_for_gp(space: Space) -> Iterator[str]:
    for path, distribution in space.distributions.items():
        step = getattr(distribution, "step", None)
        if step is None:
            continue
        ends = boundary_values(distribution)
        count = (ends[-1] - ends[0]) / step + 1  # infinite for the smallest steps
        if count > MOST_VALUES_OF_GP + 0.5:
            yield (
                f"space.{path}: search.sampler.kind=gp lists its {count:,.0f} values for every suggestion, which needs "
                "much memory and time; give a larger step or a smaller range, or use search/sampler=tpe"
            )


def _population(search: Search, scheduler: PBTScheduler | PB2Scheduler, space: Space) -> Iterator[str]:
    kind = scheduler.kind
    if search.sampler.kind in NEED_WHOLE_TRIALS:
        yield (
            f"search.sampler.kind={search.sampler.kind}: learns from whole trials, and search.scheduler.kind={kind} "
            "changes a trial's values while it trains; use search/sampler=random or qmc"
        )
    if search.num_trials < 2:
        yield (
            f"search.num_trials={search.num_trials}: is the size of the population for search.scheduler.kind={kind}; "
            "set it to 2 or more, so that one trial can learn from another"
        )
    for index, path in enumerate(scheduler.mutate or []):
        problem = _why_fixed(kind, path, space)
        if problem is not None:
            yield f"search.scheduler.mutate.{index}={path}: {problem}"
    if not mutated_paths(scheduler, space):
        yield (
            f"search.scheduler.kind={kind}: the space has no parameter that can change during training; search "
            f"one of {', '.join(MUTABLE)}, or name your own arguments in search.scheduler.mutate"
        )


def _why_fixed(kind: str, path: str, space: Space) -> str | None:
    """Return the reason why a parameter cannot change during training; None if it can."""
    if path not in space.distributions:
        return f"the space has no such path{did_you_mean(path, space)}"
    distribution, of_numbers = space[path], isinstance(space[path], FloatDistribution | IntDistribution)
    problems = {
        f"cannot change during training; these can: {', '.join(MUTABLE)}": not is_mutable(path),
        "exists only under a condition, which another change may end; remove it here, or its `when`": bool(
            distribution.when
        ),
        "decides whether other parameters exist, which cannot change during training; remove it here": any(
            path in space[other].when for other in space
        ),
        "is constant; remove it here": isinstance(distribution, ConstantDistribution),
        f"is {distribution.type}, and pb2 changes ranges of numbers only; remove it here, or use pbt": kind == "pb2"
        and not of_numbers,
    }
    return next((problem for problem, is_so in problems.items() if is_so), None)


def _resource(composition: Composition, space: Space, lookup: Lookup) -> Iterator[str]:
    """Check that a trial reaches the point where the scheduler decides."""
    config, scheduler = composition.config, composition.config.search.scheduler
    assert scheduler.kind != "none"
    resource = scheduler.resource
    counted = COUNTED.get(config.task.kind)
    if counted is not None and resource not in counted:
        yield (
            f"search.scheduler.resource={resource}: the task {config.task.kind} does not count them; use "
            f"{', '.join(counted[:-1])} or {counted[-1]}"
        )
        return
    length = longest_trial(composition, space, resource, lookup)
    if isinstance(scheduler, HyperbandScheduler):
        grace, longest = hyperband_range(composition, space, lookup)
        if longest is None:
            yield (
                f"search.scheduler.longest: the number of {resource} of a trial does not follow from the config; "
                "set it, as in search.scheduler.longest=81"
            )
        elif grace is None:
            yield (
                f"search.scheduler.grace: the number of {resource} until a trial's first evaluation does not follow "
                f"from the config; set it, as in search.scheduler.grace={longest / 27:g}"
            )
        elif longest < grace * scheduler.eta:
            whose = "search.scheduler.longest" if scheduler.longest else "a trial's length"
            yield (
                f"search.scheduler.eta={scheduler.eta:g}: {whose} of {longest:g} {resource} is less than eta times the "
                f"first rung ({grace:g}), so no trial is compared with another before its end; evaluate "
                "more often (train.eval_every), or lower eta or grace"
            )
        return
    has_grace = isinstance(scheduler, OF_RUNGS)
    name = "grace" if has_grace else "interval"
    first: float = getattr(scheduler, name)
    if length is not None and first > length:
        yield (
            f"search.scheduler.{name}={first:g}: a trial has {amount(length, resource)}, so this scheduler would never "
            f"act; lower it, or lengthen the trials (train.max_steps), or use search/scheduler=none"
        )


def _stop(config: SweepConfig) -> Iterator[str]:
    stop = config.search.stop
    if config.scaling.use_gpu is not False and (
        config.cluster.address != "local" or local_resources(config).get("GPU", 0) > 0
    ):
        return
    if stop.gpu_hours is not None:
        yield (
            f"search.stop.gpu_hours={stop.gpu_hours:g}: trials use no GPU, so it would never stop; "
            "use search.stop.wall_hours, or scaling.use_gpu=true where there are GPUs"
        )
    if stop.cost is not None and not stop.cost.per_cpu_hour and not config.scaling.pools:
        yield (
            f"search.stop.cost.per_gpu_hour={stop.cost.per_gpu_hour:g}: trials use no GPU, so they cost nothing; "
            "set search.stop.cost.per_cpu_hour"
        )


def _priors(space: Space) -> Iterator[str]:
    for path in space:
        distribution = space[path]
        if isinstance(distribution, ConstantDistribution) or distribution.prior is None:
            continue
        value = distribution.prior.value
        if not contains(distribution, value):
            yield f"space.{path}.prior.value={value!r}: {expected(distribution, value)}, as in the space"
