"""Reads the entries of Hydra's ``ConfigStore`` in a Hydra application: dataclasses and mappings, by group and name."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from sweeps.scaffold.dataclass_options import options_of_class
from sweeps.scaffold.option import MISSING, Option
from sweeps.scaffold.syntax import constants_of, literal, name_of

Stored = dict[tuple[str, str], list[Option]]
"""Options of each entry by group and name; the group of a top-level entry is empty."""


def stored_options(tree: ast.Module) -> Stored:
    """Return the entries of ``store(group=..., name=..., node=...)`` with their options; an entry whose node is defined
    elsewhere is left out."""
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    constants = constants_of(tree)
    found: Stored = {}
    for given in _calls(tree):
        name, group = literal(given.get("name", ast.Constant(None))), literal(given.get("group", ast.Constant("")))
        if isinstance(name, str) and isinstance(group, str) and "node" in given:
            options = _of_node(given["node"], classes, constants)
            if options is not None:
                found[group, name.removesuffix(".yaml")] = options
    return found


def _calls(tree: ast.Module) -> Iterator[Mapping[str, ast.expr]]:
    """Yield the arguments of each call of a function named ``store``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name_of(node.func) == "store":
            yield dict(zip(("name", "node", "group"), node.args, strict=False)) | {
                each.arg: each.value for each in node.keywords if each.arg is not None
            }


def _of_node(node: ast.expr, classes: Mapping[str, ast.ClassDef], constants: Mapping[str, Any]) -> list[Option] | None:
    """Return the options of a dataclass, an instance of one, or a mapping; None for anything else."""
    match node:
        case ast.Name(id=name) if name in classes:
            return options_of_class(classes[name], classes, constants)
        case ast.Call(func=ast.Name(id=name)) if name in classes:
            given = {each.arg: literal(each.value, constants) for each in node.keywords}
            options = options_of_class(classes[name], classes, constants)
            return [Option(each.name, each.type, given[each.name]) if each.name in given else each for each in options]
        case ast.Dict() if isinstance(values := literal(node, constants), dict):
            return [
                Option(str(key), default=MISSING if value is None else value)
                for key, value in values.items()
                if isinstance(value, int | float | str | None)
            ]
    return None
