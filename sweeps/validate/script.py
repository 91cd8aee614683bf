"""Which options a user's script takes, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from sweeps.validate.source import find_module, parents_of, parsed_file, parsed_module

OF_A_PARSER = ("add_argument", "parse_args", "error", "print_help")
"""Methods of an ``ArgumentParser`` after which its options are still those that the source lists."""


class _AnyOption(Exception):
    """The script may take options that its source does not list."""


def script_options(target: str) -> set[str] | None:
    """``--name`` options of a script that has one ``ArgumentParser``, without dashes; None where it may take others.

    Args:
        target: A ``.py`` file, or a module as after ``python -m``.
    """
    tree = _source(target)
    if tree is None:
        return None
    try:
        return _options(tree)
    except _AnyOption:
        return None


def _source(target: str) -> ast.Module | None:
    if target.endswith(".py"):
        return parsed_file(Path(target).expanduser())
    spec = find_module(target)
    is_package = spec is not None and spec.submodule_search_locations is not None
    return parsed_module(find_module(f"{target}.__main__") if is_package else spec)


def _options(tree: ast.Module) -> set[str]:
    parents, options = parents_of(tree), set[str]()
    parser = _parser(tree, parents)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "argv":
            raise _AnyOption
        if not isinstance(node, ast.Name) or node.id != parser or isinstance(node.ctx, ast.Store):
            continue
        attribute, call = parents[node], parents[parents[node]]
        if not isinstance(attribute, ast.Attribute) or not isinstance(call, ast.Call):
            raise _AnyOption  # handed on to who may add options
        if attribute.attr not in OF_A_PARSER:
            raise _AnyOption
        if attribute.attr == "add_argument":
            options |= _added(call)
    return options


def _parser(tree: ast.Module, parents: Mapping[ast.AST, ast.AST]) -> str:
    """Name of the variable that holds the one parser."""
    made = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) == "ArgumentParser"]
    if len(made) == 1 and all(each.arg not in (None, "parents") for each in made[0].keywords):
        match parents[made[0]]:
            case ast.Assign(targets=[ast.Name(id=name)]):
                return name
    raise _AnyOption


def _added(call: ast.Call) -> set[str]:
    names = [each.value for each in call.args if isinstance(each, ast.Constant)]
    if len(names) != len(call.args):
        raise _AnyOption
    return {str(name).removeprefix("--") for name in names if str(name).startswith("--")}


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
