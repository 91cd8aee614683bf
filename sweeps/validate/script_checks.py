"""Options of a user's script, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from sweeps.validate.source_checks import find_module, parents_of, parsed_file, parsed_module

PARSER_METHODS = ("add_argument", "parse_args", "error", "print_help")
"""Methods of an ``ArgumentParser`` that leave its options as the source lists them."""
OptionKind = Literal["value", "flag", "bool"]
"""An option with a value, one without, or one with ``type=bool``, which takes any text for true."""


class _AnyOption(Exception):
    """The script may accept options that its source does not list."""


def script_options(target: str) -> dict[str, OptionKind] | None:
    """Return the ``--name`` options of a script (a ``.py`` file, or a module as after ``python -m``) with one
    ``ArgumentParser``, without dashes; None if there may be more."""
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


def _options(tree: ast.Module) -> dict[str, OptionKind]:
    parents, options = parents_of(tree), dict[str, OptionKind]()
    parser = _parser(tree, parents)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "argv":
            raise _AnyOption
        if not isinstance(node, ast.Name) or node.id != parser or isinstance(node.ctx, ast.Store):
            continue
        attribute, call = parents[node], parents[parents[node]]
        if not isinstance(attribute, ast.Attribute) or not isinstance(call, ast.Call):
            raise _AnyOption  # passed to code that may add options
        if attribute.attr not in PARSER_METHODS:
            raise _AnyOption
        if attribute.attr == "add_argument":
            options |= _added(call)
    return options


def _parser(tree: ast.Module, parents: Mapping[ast.AST, ast.AST]) -> str:
    """Return the name of the variable that holds the parser."""
    made = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) == "ArgumentParser"]
    if len(made) == 1 and all(each.arg not in (None, "parents") for each in made[0].keywords):
        match parents[made[0]]:
            case ast.Assign(targets=[ast.Name(id=name)]):
                return name
    raise _AnyOption


def _added(call: ast.Call) -> dict[str, OptionKind]:
    names = [each.value for each in call.args if isinstance(each, ast.Constant)]
    if len(names) != len(call.args) or any(map(_takes_the_rest, call.keywords)):
        raise _AnyOption
    return {str(name).removeprefix("--"): _kind(call) for name in names if str(name).startswith("--")}


def _takes_the_rest(keyword: ast.keyword) -> bool:
    """Whether an argument takes all words that follow, as of another program."""
    match keyword:
        case ast.keyword(arg="nargs", value=ast.Attribute(attr="REMAINDER") | ast.Constant(value="...")):
            return True
    return False


def _kind(call: ast.Call) -> OptionKind:
    for keyword in call.keywords:
        match keyword:
            case ast.keyword(arg="action", value=ast.Constant(value="store_true" | "store_false")):
                return "flag"
            case ast.keyword(arg="type", value=ast.Name(id="bool")):
                return "bool"
    return "value"


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
