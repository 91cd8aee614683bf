"""Reads a ``param_space`` of Ray Tune, by its import path."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from sweeps.compat.ray_tune import objective_of
from sweeps.convert import distributions
from sweeps.convert.conversion import Conversion
from sweeps.convert.distributions import Converted
from sweeps.convert.wandb_sweep import is_wandb_sweep
from sweeps.errors import UserError
from sweeps.texts.suggestions import did_you_mean

SCHEDULERS = {
    **dict.fromkeys(("AsyncHyperBandScheduler", "asha", "async_hyperband", "asynchyperband"), "asha"),
    **dict.fromkeys(("MedianStoppingRule", "median_stopping_rule", "medianstopping"), "asha"),
    **dict.fromkeys(("HyperBandScheduler", "hyperband", "HyperBandForBOHB", "hb_bohb"), "hyperband"),
    **dict.fromkeys(("PopulationBasedTraining", "pbt"), "pbt"),
    **dict.fromkeys(("PB2", "pb2"), "pb2"),
    **dict.fromkeys(("FIFOScheduler", "fifo"), "none"),
}
"""Kinds of schedulers by Tune's classes, and by the names that a ``TuneConfig`` takes in their place."""
SEARCHERS = {
    **dict.fromkeys(("OptunaSearch", "optuna", "HyperOptSearch", "hyperopt"), "tpe"),
    **dict.fromkeys(("BayesOptSearch", "bayesopt", "AxSearch", "ax"), "gp"),
    **dict.fromkeys(("TuneBOHB", "bohb"), "bohb"),
}
TUNES_OWN = ("BasicVariantGenerator", "random", "variant_generator")
"""Searcher that Tune uses without another one: it trains grids, and draws all other values at random."""
PLAIN = (bool, int, float, str, type(None))


def read_ray_tune(path: str, tune_config: str | None) -> Conversion:
    """Convert a ``param_space``.

    Args:
        path: ``module:name`` of the mapping.
        tune_config: ``module:name`` of a ``TuneConfig``, for metric, mode, number of trials and scheduler.

    Raises:
        UserError: A path leads to nothing, or to another kind of object.
    """
    space = _import(path)
    if not isinstance(space, Mapping):
        raise UserError(f"{path}: must be the mapping given as param_space, not a {type(space).__name__}")
    conversion = Conversion(tool="a param_space of Ray Tune", sampler="random")
    conversion.set_name(path.partition(":")[0].rpartition(".")[2])
    if isinstance(space.get("train_loop_config"), Mapping):  # of a trainer instead of a function
        others = [name for name in space if name != "train_loop_config"]
        if others:
            conversion.notes.append(f"{', '.join(others)}: settings of the trainer; see scaling and checkpoint")
        space = space["train_loop_config"]
    values = {conversion.keep_dots(keys): _without_numpy(value) for keys, value in _flatten(space)}
    grid = [name for name, value in values.items() if _is_grid(value)]
    for name, value in values.items():
        _add(conversion, path, name, value)
    if not conversion.space and is_wandb_sweep(space):
        raise UserError(f"{path}: is a W&B sweep; write it into a YAML file, as by yaml.safe_dump, and convert that")
    if grid and set(grid) == set(conversion.space):
        conversion.sampler = "grid"
    elif grid:
        conversion.notes.append(f"{', '.join(grid)}: grid_search beside random values; all are sampled here")
    if tune_config is None:
        conversion.notes.append("search.metric is loss, and search.mode is min; --tune-config MODULE:NAME reads them")
    else:
        points = math.prod(len(values[name]["grid_search"]) for name in grid)
        _read_tune_config(conversion, tune_config, points)
    conversion.notes.append(
        "give task._target_: the import path of the train function; it reports by ray.train.report, as ray.tune.report "
        "does in Ray Tune"
    )
    return conversion


def _import(path: str) -> Any:
    module_name, _, name = path.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # noqa: BLE001 - a user's module may raise anything
        raise UserError(f"{path}: {module_name} cannot be imported ({type(error).__name__}: {error})") from None
    if not hasattr(module, name):
        raise UserError(f"{path}: {module_name} has no {name!r}{did_you_mean(name, vars(module), listed=0)}")
    return getattr(module, name)


def _flatten(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value and not _is_grid(value):
            yield from _flatten(value, (*above, str(name)))
        else:
            yield (*above, str(name)), value


def _without_numpy(value: Any) -> Any:
    """Return a value with NumPy's numbers and arrays converted to Python's."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_without_numpy(each) for each in value]
    return {name: _without_numpy(each) for name, each in value.items()} if isinstance(value, Mapping) else value


def _is_grid(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"grid_search"}


def _add(conversion: Conversion, path: str, name: str, value: Any) -> None:
    """Add one value of the mapping to the space or the arguments.

    Raises:
        UserError: The value does not make a valid distribution.
    """
    from ray.tune.search.sample import Domain, Function

    if isinstance(value, Function):
        conversion.notes.append(
            f"{name}: sample_from: a function cannot be carried over; see derived values and `when`"
        )
    elif _is_grid(value) or isinstance(value, Domain):
        try:
            conversion.search(name, _converted(value))
        except (ValueError, TypeError, OverflowError) as error:
            raise UserError(f"{path}: {name}: {error}") from None
    elif _is_plain(value):
        conversion.arguments[name] = value
    else:
        conversion.notes.append(
            f"{name}: a config cannot hold a value of type {type(value).__name__}; make it in the function, or write "
            "the distribution of another library in space"
        )


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    return isinstance(value, PLAIN)


def _converted(domain: Any) -> Converted:
    """Return our distribution for one of Tune's, or for a grid.

    Raises:
        ValueError: There is no equivalent distribution.
    """
    from ray.tune.search.sample import Categorical, Integer, LogUniform, Normal, Quantized

    if _is_grid(domain) or isinstance(domain, Categorical):
        choices = _without_numpy(list(domain["grid_search"] if _is_grid(domain) else domain.categories))
        if not all(map(_is_plain, choices)):
            raise ValueError("has choices that a config cannot hold; give names, and make the objects in the function")
        return distributions.choice(choices)
    sampler, step = domain.get_sampler(), None
    if isinstance(sampler, Quantized):
        step, sampler = sampler.q, sampler.get_sampler()  # type: ignore[no-untyped-call]
    if isinstance(sampler, Normal):
        return distributions.normal(sampler.mean, sampler.sd, step)
    whole = isinstance(domain, Integer)
    low, high = domain.lower, domain.upper
    if whole and step is None:
        high -= 1  # randint and lograndint leave their upper end out; the quantized ones include it
    log = isinstance(sampler, LogUniform)
    if step is None or (whole and step == 1):
        return (
            distributions.log_uniform(low, high, whole=whole) if log else distributions.uniform(low, high, whole=whole)
        )
    return distributions.rounded_log_uniform(low, high, step) if log else distributions.rounded_uniform(low, high, step)


def _read_tune_config(conversion: Conversion, path: str, points: int) -> None:
    """Read a ``TuneConfig``; ``points`` is the number of points of the grid, 1 without one."""
    from ray.tune import TuneConfig

    config = _import(path)
    if not isinstance(config, TuneConfig):
        raise UserError(f"--tune-config={path}: must be a ray.tune.TuneConfig, not a {type(config).__name__}")
    _read_objective(conversion, config)
    if conversion.sampler != "grid" and config.num_samples > 0:
        conversion.num_trials = config.num_samples * points  # Tune trains the whole grid as often
    elif conversion.sampler == "grid" and config.num_samples > 1:
        conversion.notes.append(
            f"num_samples={config.num_samples}: each point of the grid is trained once here; see search.confirm"
        )
    conversion.max_concurrent = config.max_concurrent_trials
    if config.time_budget_s is not None:
        budget = config.time_budget_s
        conversion.wall_hours = (budget.total_seconds() if isinstance(budget, timedelta) else budget) / 3600
    if config.scheduler is not None:
        name = _name(config.scheduler)
        conversion.scheduler = {"kind": SCHEDULERS.get(name, "asha")}
        if conversion.scheduler["kind"] == "hyperband":
            conversion.scheduler["longest"] = 81  # Tune's own default
        known = f"its settings are not read; set them in search.scheduler ({conversion.scheduler['kind']})"
        if conversion.scheduler["kind"] in ("pbt", "pb2"):
            known += ", and the ranges of what it changes (hyperparam_mutations, hyperparam_bounds) in space"
        conversion.notes.append(
            f"scheduler {name}: {known if name in SCHEDULERS else 'is not known; asha takes its place'}"
        )
    if config.search_alg is not None:
        _read_searcher(conversion, config.search_alg)


def _read_searcher(conversion: Conversion, searcher: Any) -> None:
    """Read the kind of a searcher, and how many trials it allows at a time."""
    names = []
    while searcher is not None:  # a ConcurrencyLimiter or a Repeater, then the searcher inside it
        names.append(_name(searcher))
        if bound := getattr(searcher, "max_concurrent", None):  # 0: none
            conversion.max_concurrent = min(bound, conversion.max_concurrent or bound)
        searcher = getattr(searcher, "searcher", None)
    if names[-1] not in TUNES_OWN:
        conversion.sampler = SEARCHERS.get(names[-1], "tpe")
    conversion.notes.append(
        f"search_alg {' of '.join(names)}: the sampler is {conversion.sampler}; its settings are not read, such as "
        "points_to_evaluate (search.points)"
    )


def _name(part: Any) -> str:
    """Return the class of a scheduler or searcher, or the name that was given in its place."""
    return part if isinstance(part, str) else type(part).__name__


def _read_objective(conversion: Conversion, config: Any) -> None:
    """Read the metric and the mode, which Tune takes from the ``TuneConfig``, its scheduler or its searcher."""
    given = [(config.metric, config.mode), objective_of(config.scheduler), objective_of(config.search_alg)]
    metrics, modes = ([each for each in of_part if each is not None] for of_part in zip(*given, strict=True))
    if metrics:
        conversion.metrics = metrics[0] if isinstance(metrics[0], list) else metrics[:1]
    if modes:
        conversion.modes = modes[0] if isinstance(modes[0], list) else modes[:1]
    if not (metrics and modes):
        conversion.notes.append(
            f"the TuneConfig has no {'mode' if metrics else 'metric'}; search.metric is {conversion.metrics[0]}, and "
            f"search.mode is {conversion.modes[0]}"
        )
