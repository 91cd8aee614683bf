"""Checks the fixed and searched arguments of functions and classes that a config names by ``_target_``."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from sweeps.compose import Composition, Variant
from sweeps.compose.dotted import MISSING, find
from sweeps.config import SweepConfig
from sweeps.config.samplers import CustomSampler
from sweeps.errors import raise_mistakes
from sweeps.space.distributions import boundary_values
from sweeps.space.space import Lookup, Space
from sweeps.texts.suggestions import closest_names, did_you_mean
from sweeps.validate.dataset_checks import dataset_mistakes
from sweeps.validate.estimator_checks import estimator_mistakes, loss_mistakes
from sweeps.validate.script_checks import script_options
from sweeps.validate.source_checks import keys_read, source_signature
from sweeps_train.command.placeholders import as_text
from sweeps_train.config import CustomData, CustomModel, CustomOptimizer, EstimatorTask, FunctionTask, TableData

Signature = Callable[[str], inspect.Signature | None]
"""Function that returns the signature of an import path; None if it is unknown."""
MISSPELT = 0.8
"""Minimum similarity of an unused argument to one that is read, for it to be reported as misspelt."""
FALSE = ("false", "0", "no", "off", "null", "none")
"""Texts that mean false, but not to Python's ``bool``."""
GIVEN_SIZES = ("num_numbers", "category_sizes", "num_outputs")
"""Arguments that a user's own model for tables receives, if its signature has them."""
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def check_arguments(composition: Composition, space: Space, lookup: Lookup) -> None:
    """Check the arguments of every signature found in the source, for each option of a searched group and each searched
    argument.

    Raises:
        ConfigError: The message has every unknown or missing argument, one per line.
    """
    configs = list(configs_of_trials(composition, space, lookup))
    raise_mistakes(line for _, config in configs for line in argument_mistakes(config, source_signature, list(space)))
    if "eval/loss" in composition.config.search.metrics:
        tasks = [(point, config.task) for point, config in configs if isinstance(config.task, EstimatorTask)]
        raise_mistakes(loss_mistakes(tasks))


def configs_of_trials(
    composition: Composition,
    space: Space,
    lookup: Lookup,
    sections: Collection[str] = ("model", "data", "task", "search"),
) -> Iterator[tuple[dict[str, Any], SweepConfig]]:
    """Yield points with their configs: one for each combination of options of searched groups, the sweep's own first,
    and one for each value at the ends of a range in these sections. Arguments that only the space sets have one of
    their values."""
    points: dict[Variant, dict[str, Any]] = {}
    for variant in composition.variants:
        points[variant] = _with_arguments(composition, space, lookup, dict(variant))
        yield points[variant], composition.trial(points[variant])
    for path, _, corner in space.corners(lookup):
        if path.partition(".")[0] in sections and path not in composition.searched_groups:
            point = {**points[composition.variant(corner)], **corner}
            yield point, composition.trial(point)


def _with_arguments(
    composition: Composition, space: Space, lookup: Lookup, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a point that gives every argument a value that the given options allow."""
    point, values = dict(options), composition.container(options)
    for path, distribution in space.distributions.items():
        is_missing = find(values, path) is MISSING and ".arguments." in path
        if is_missing and space.active(path, {**values_of(space, values), **point}, lookup):
            point[path] = boundary_values(distribution)[0]
    return point


def values_of(space: Space, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a config at the searched paths."""
    return {path: value for path in space if (value := find(values, path)) is not MISSING}


def argument_mistakes(config: SweepConfig, signature: Signature, space: Collection[str] = ()) -> Iterator[str]:
    """Yield one line for each mistake in arguments, with key, value and the nearest name."""
    for key, section in (("model", config.model), ("data", config.data)):
        if isinstance(section, CustomModel | CustomData):
            found = signature(section.target)
            is_of_rows = isinstance(section, CustomModel) and isinstance(config.data, TableData)
            given = {name: ... for name in GIVEN_SIZES if _takes(found, name)} if is_of_rows else {}
            yield from mistakes_of_call(key, section.target, {**given, **section.arguments}, found, space)
    if config.train is not None and isinstance(optimizer := config.train.optimizer, CustomOptimizer):
        yield from _mistakes_of_optimizer(optimizer, signature(optimizer.target), space)
    sampler = config.search.sampler
    if isinstance(sampler, CustomSampler):
        found = signature(sampler.target)
        seed = {"seed": config.seed} if _takes(found, "seed") else {}
        yield from mistakes_of_call("search.sampler", sampler.target, {**seed, **sampler.arguments}, found, space)
    if isinstance(config.task, EstimatorTask):
        yield from estimator_mistakes(config.task, space)
    if isinstance(config.task, FunctionTask):
        if config.task.framework == "script":
            yield from _mistakes_of_script(config.task, space)
        elif (found := signature(config.task.target)) is not None:
            yield from _mistakes_of_function(config.task, found, space)
        for name, each in config.task.datasets.items():
            key = f"task.datasets.{name}"
            yield from mistakes_of_call(key, each.target, each.arguments, signature(each.target), space)
        yield from dataset_mistakes(config.task)


def mistakes_of_call(
    key: str,
    target: str,
    arguments: Mapping[str, Any],
    signature: inspect.Signature | None,
    space: Collection[str] = (),
) -> Iterator[str]:
    """Yield the reasons why ``target(**arguments)`` cannot be called."""
    if signature is None:
        return
    parameters = signature.parameters.values()
    known = [each.name for each in parameters if each.kind in NAMED]
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
    unknown = [] if takes_any else [name for name in arguments if name not in known]
    for name in unknown:
        given = _written(f"{key}.arguments.{name}", arguments[name], space)
        yield f"{given}: {key}._target_={target} takes no argument {name!r}{did_you_mean(name, known)}"
    missing = [
        each.name
        for each in parameters
        if each.kind in NAMED and each.default is inspect.Parameter.empty and each.name not in arguments
    ]
    if unknown and missing:
        return  # the missing one is most likely an unknown one, misspelt
    for name in missing:
        yield f"{key}.arguments.{name}: {key}._target_={target} needs it; give it a value"


def _mistakes_of_optimizer(
    optimizer: CustomOptimizer, found: inspect.Signature | None, space: Collection[str]
) -> Iterator[str]:
    called = {"params": ..., "lr": ..., **optimizer.arguments}
    yield from mistakes_of_call("train.optimizer", optimizer.target, called, found, space)
    for name in sorted({"lr", "weight_decay"} & optimizer.arguments.keys()):
        yield (
            f"train.optimizer.arguments.{name}={optimizer.arguments[name]} would have no effect: the groups of "
            f"parameters get train.{name}; set that instead"
        )


def _mistakes_of_script(task: FunctionTask, space: Collection[str]) -> Iterator[str]:
    """Check ``task.arguments``, which a script receives as ``--name=value``."""
    options = script_options(task.target)
    if options is None:
        return
    for name, value in task.arguments.items():
        path = f"task.arguments.{name}"
        given = _written(path, value, space)
        if not any(each.startswith(name) for each in options):
            yield f"{given}: task._target_={task.target} has no option --{name}{did_you_mean(name, options)}"
        elif options.get(name) == "flag":
            yield (
                f"{given}: task._target_={task.target} takes --{name} without a value, and a script gets "
                f"--{name}={as_text(value)}; use task=command, where {{--{name}: true}} in task.options adds it alone"
            )
        elif options.get(name) == "bool" and path in space and as_text(value).lower() in FALSE:
            yield (
                f"{given}: task._target_={task.target} reads --{name} with type=bool, which takes any text for true, "
                f"also {as_text(value)}; let it read the text, as type=json.loads does"
            )


def _mistakes_of_function(task: FunctionTask, found: inspect.Signature, space: Collection[str]) -> Iterator[str]:
    """Check ``task.arguments``, which a function receives as one mapping."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = [each for each in found.parameters.values() if each.kind not in variable]
    required = [each.name for each in parameters if each.default is inspect.Parameter.empty]
    keys = keys_read(task.target)
    from_mapping = {"config", *(keys or ())}
    one_by_one = [each.name for each in parameters if each.name in task.arguments and each.name not in from_mapping]
    if len(required) > 1 or one_by_one:
        names = required if len(required) > 1 else one_by_one
        yield (
            f"task._target_={task.target}: takes {', '.join(names)}, but is called with one mapping; write "
            "`def train(config)`, and read config['NAME'] there"
        )
        return
    if not parameters and (task.arguments or task.framework != "ray_train"):
        yield (
            f"task._target_={task.target}: takes no arguments, and is called with one mapping "
            f"({', '.join(task.arguments) or 'empty'}); write `def train(config)`, or remove the arguments "
            "(~task.arguments ~space)"
        )
        return
    yield from _unused_arguments(task, keys, space)


def _unused_arguments(task: FunctionTask, keys: set[str] | None, space: Collection[str]) -> Iterator[str]:
    """Report searched arguments that the function does not read, and fixed ones that look like a misspelt key."""
    if keys is None:
        return
    for name, value in task.arguments.items():
        path = f"task.arguments.{name}"
        if name in keys:
            continue
        if path in space:
            yield (
                f"space.{path}: task._target_={task.target} does not read {name!r}, so it has no effect; "
                f"remove it (~space.{path}, or `{path}: null` below space in YAML){_reads(keys, name)}"
            )
        elif closest_names(name, keys - task.arguments.keys()) or difflib.get_close_matches(
            name, keys, cutoff=MISSPELT
        ):
            yield f"{path}={value!r}: task._target_={task.target} does not read {name!r}{did_you_mean(name, keys)}"


def _reads(keys: set[str], name: str) -> str:
    return (
        did_you_mean(name, keys) if closest_names(name, keys) else f"; it reads {', '.join(sorted(keys)) or 'nothing'}"
    )


def _written(path: str, value: Any, space: Collection[str]) -> str:
    return f"space.{path}" if path in space else f"{path}={value!r}"


def _takes(signature: inspect.Signature | None, name: str) -> bool:
    return signature is not None and name in signature.parameters
