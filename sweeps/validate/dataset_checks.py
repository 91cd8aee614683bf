"""Checks ``task.datasets`` against the names that a Ray Train function requests, from its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from sweeps.texts.suggestions import did_you_mean
from sweeps.validate.source_checks import Function, find_definition, find_module, parents_of, parsed_file
from sweeps_train.config import FunctionTask

GET_SHARD = "get_dataset_shard"
MAX_MODULES = 50
"""Maximum number of modules that are searched for calls."""


def dataset_mistakes(task: FunctionTask) -> Iterator[str]:
    """Yield one line for each mistake: datasets that are not read, not given or not split."""
    split = task.dataset_config.datasets_to_split
    for name in split if isinstance(split, list) else ():
        if name not in task.datasets:
            yield (
                f"task.dataset_config.datasets_to_split={split}: task.datasets has no {name!r}"
                f"{did_you_mean(name, task.datasets)}"
            )
    if task.framework == "script":
        return
    for name in sorted(_asked_by(task.target) - task.datasets.keys()):
        yield (
            f"task.datasets.{name}: task._target_={task.target} reads it with {GET_SHARD}({name!r}); name the function "
            f"that makes it, as in task.datasets.{name}._target_=module.make"
        )
    if not task.datasets or (read := names_read(task.target)) is None:
        return
    for name in task.datasets:
        if name not in read:
            reads = f"reads {', '.join(sorted(read))}" if read else f"does not call {GET_SHARD}"
            yield (
                f"task.datasets.{name}: task._target_={task.target} {reads}; read it with ray.train.{GET_SHARD}"
                f"({name!r}), or remove it (~task.datasets.{name})"
            )


def names_read(target: str) -> set[str] | None:
    """Return the names of the datasets that a function's module requests, including the user's modules that it imports;
    None if the source does not show all of them."""
    found = find_definition(target)
    if found is None:
        return None
    names, waiting, seen = set[str](), [found.module], set[str]()
    own = found.module.partition(".")[0]
    while waiting and len(seen) < MAX_MODULES:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        tree = _users_module(module, own)
        for node in ast.walk(tree) if tree is not None else ():
            if _is_call(node):
                name = _name(node)
                if name is None:
                    return None
                names.add(name)
            waiting += _imported(node, module)
    return names if not waiting else None


def _asked_by(target: str) -> set[str]:
    """Return the names of datasets that a function requests in every call: outside of conditions, loops and other
    functions."""
    found = find_definition(target)
    if found is None or not isinstance(found.node, Function):
        return set()
    parents, names = parents_of(found.node), set[str]()
    for node in ast.walk(found.node):
        if not _is_call(node) or (name := _name(node)) is None:
            continue
        above = parents[node]
        while isinstance(above, ast.expr | ast.Assign | ast.AnnAssign | ast.Expr | ast.keyword | ast.With):
            if isinstance(above, ast.IfExp | ast.BoolOp | ast.Lambda):
                break
            above = parents[above]
        if above is found.node:
            names.add(name)
    return names


def _is_call(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name == GET_SHARD
    return False


def _name(call: ast.AST) -> str | None:
    """Return the name of the dataset that a call requests; None if it is not a constant."""
    match call:
        case ast.Call(args=[ast.Constant(value=str(name))]):
            return name
        case ast.Call(args=[], keywords=[ast.keyword(arg="dataset_name", value=ast.Constant(value=str(name)))]):
            return name
    return None


def _users_module(module: str, own: str) -> ast.Module | None:
    """Return the syntax tree of a module of the function's package or of the working folder, found without importing
    anything; None for any other module."""
    top, *parts = module.split(".")
    spec = find_module(top)
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin)
    if top != own and (Path.cwd() not in file.parents or "site-packages" in file.parts):
        return None
    if not parts:
        return parsed_file(file)
    below = file.parent.joinpath(*parts)
    return parsed_file(below.with_suffix(".py")) or parsed_file(below / "__init__.py")


def _imported(node: ast.AST, module: str) -> Iterator[str]:
    """Yield the modules that a statement may import."""
    match node:
        case ast.Import(names=names):
            yield from (each.name for each in names)
        case ast.ImportFrom(module=source, level=level, names=names):
            package = ".".join(module.split(".")[:-level]) if level else ""
            base = ".".join(part for part in (package, source or "") if part)
            yield from (base, *(f"{base}.{each.name}" for each in names))
