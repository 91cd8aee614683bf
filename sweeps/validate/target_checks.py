"""Checks the import paths and local files that a config names."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from sweeps.compose import Composition
from sweeps.config import SweepConfig
from sweeps.config.samplers import CustomSampler
from sweeps.errors import ConfigError, mistakes_of, raise_mistakes
from sweeps.space.space import Lookup, Space
from sweeps.texts.suggestions import did_you_mean
from sweeps.validate.estimator_checks import check_library
from sweeps.validate.model_checks import check_installed
from sweeps.validate.source_checks import at_module_level, find_definition, find_module, is_plain_value, parsed
from sweeps_train.config import CausalLM, CustomData, CustomModel, CustomOptimizer, EstimatorTask, FunctionTask

SEARCHED = ("_target_", "model.path")
"""Endings of the searched paths whose values name code or files."""


def check_all_targets(composition: Composition, space: Space, lookup: Lookup) -> None:
    """Check the import paths and local files of all trials: under each option of the searched groups, with each choice
    of the space, and at each of the user's points.

    Raises:
        ConfigError: Names every path and file that does not exist, one per line.
    """
    points: list[Mapping[str, Any]] = [dict(variant) for variant in composition.variants]
    points += [corner for path, _, corner in space.corners(lookup) if path.endswith(SEARCHED)]
    points += [point for point in composition.config.search.points if any(path.endswith(SEARCHED) for path in point)]
    raise_mistakes(line for point in points for line in mistakes_of(_check_trial, composition, point))


def _check_trial(composition: Composition, point: Mapping[str, Any]) -> None:
    check_targets(composition.trial(point))


def check_targets(config: SweepConfig) -> None:
    """Check the import paths and local files of one config.

    Raises:
        ConfigError: An import path or a local file does not exist.
    """
    for key, section in (("task", config.task), ("model", config.model), ("data", config.data)):
        if isinstance(section, FunctionTask):
            _check_function(section)
        elif isinstance(section, EstimatorTask | CustomModel | CustomData):
            if isinstance(section, EstimatorTask):
                check_library(section)
            check_target(f"{key}._target_", section.target)
        elif isinstance(section, CausalLM):
            _check_path("model.path", section.path)
    if config.train is not None and isinstance(config.train.optimizer, CustomOptimizer):
        check_target("train.optimizer._target_", config.train.optimizer.target)
    if isinstance(config.search.sampler, CustomSampler):
        check_target("search.sampler._target_", config.search.sampler.target)


def check_target(key: str, target: str) -> None:
    """Check ``package.module.name`` without importing the module, which may take seconds (torch)."""
    module_name, _, name = target.rpartition(".")
    no_path = ConfigError(f"{key}={target}: must be an import path such as {_import_path(target)}")
    if not module_name or ":" in target:
        raise no_path
    if module_name == "__main__":
        raise ConfigError(
            f"{key}={target}: workers are other processes, which have another __main__; put {name} in a file, such as "
            f"mine.py, and give mine.{name}"
        )
    spec = find_module(module_name)
    if spec is None:
        if name == "py":
            raise no_path
        raise ConfigError(
            f"{key}={target}: there is no module {module_name!r}; install it, or start in the folder that has it"
        )
    if spec.origin is None or not spec.origin.endswith(".py"):
        return  # a compiled module shows its names only when it is imported
    try:
        tree = parsed(Path(spec.origin).read_bytes())
    except SyntaxError as error:
        raise ConfigError(f"{key}={target}: {spec.origin}, line {error.lineno}: {error.msg}; fix it") from error
    defined, assigned = _names(tree)
    if not {name, "*", "__getattr__"} & (defined | assigned):  # a module's __getattr__ may find any name
        if name == "py":
            raise no_path
        raise ConfigError(f"{key}={target}: the module {module_name} has no {name!r}{did_you_mean(name, defined)}")
    if is_plain_value(tree, name):
        raise ConfigError(f"{key}={target}: is a plain value in {spec.origin}; give the path of a function or class")


def _check_function(task: FunctionTask) -> None:
    """Check the code of a task, and of its data sets."""
    if task.framework == "script":
        _check_script(task.target)
        return
    if task.framework == "lightning":
        check_installed("task.framework=lightning", "Lightning", "lightning")
    check_target("task._target_", task.target)
    _check_call(task.target)
    for name, each in task.datasets.items():
        check_target(f"task.datasets.{name}._target_", each.target)


def _check_call(target: str) -> None:
    """Check that a call of a function runs it."""
    found = find_definition(target)
    if found is None or isinstance(found.node, ast.ClassDef) or found.node.decorator_list:
        return
    is_async = isinstance(found.node, ast.AsyncFunctionDef)
    if is_async or any(isinstance(node, ast.Yield | ast.YieldFrom) for node in at_module_level(found.node)):
        kind, fix = ("async", "call asyncio.run in it") if is_async else ("a generator", "remove its yield")
        raise ConfigError(
            f"task._target_={target}: is {kind}, so that a call of it runs nothing; write a plain function, and {fix}"
        )


def _import_path(target: str) -> str:
    """Return the import path that a file (``src/net.py``) or ``package.module:name`` stands for."""
    module, _, name = target.partition(":")
    if module.endswith(".py"):
        parts = PurePosixPath(module).with_suffix("").parts
        module = ".".join(part for part in parts if part not in ("/", ".."))
    elif not name:
        return "package.module.name"
    return f"{module}.{name or 'NAME'}"


def _names(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Return the names that a module defines or imports from others, and those of its variables and imported modules,
    outside its functions and classes."""
    defined = set[str]()
    assigned = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    for node in at_module_level(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                defined.add(name)
            case ast.ImportFrom(names=aliases):
                defined |= {alias.asname or alias.name for alias in aliases}
            case ast.Import(names=aliases):
                assigned |= {alias.asname or alias.name.partition(".")[0] for alias in aliases}
            case ast.Name(id=name, ctx=ast.Store()):
                assigned.add(name)
    return defined, assigned


def _check_script(target: str) -> None:
    """Check a file, or a module as after ``python -m``."""
    if target.endswith(".py"):
        if not Path(target).expanduser().is_file():
            raise ConfigError(f"task._target_={target}: there is no such file; give a script that exists, or a module")
    elif find_module(target) is None:
        raise ConfigError(
            f"task._target_={target}: there is no such module; give one as after `python -m`, or a .py file"
        )


def _check_path(key: str, path: str) -> None:
    """Check a path that begins like a local one; any other may be a name on the hub (``owner/name``)."""
    if path.startswith(("/", "./", "../", "~")) and not Path(path).expanduser().exists():
        raise ConfigError(f"{key}={path}: there is no such folder; give one that exists, or a hub name")
