"""Names and constant values in the syntax of a Python file."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from sweeps.scaffold.option import MISSING


def name_of(node: ast.expr) -> str:
    """Return the last part of a dotted name, or an empty string."""
    if isinstance(node, ast.Subscript):
        return name_of(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def constants_of(tree: ast.Module) -> dict[str, Any]:
    """Return the module's constants, such as ``LEARNING_RATE = 1e-3``, to resolve defaults that refer to them."""
    found: dict[str, Any] = {}
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                if (constant := literal(value, found)) is not MISSING:
                    found[name] = constant
    return found


def literal(node: ast.expr, constants: Mapping[str, Any] | None = None) -> Any:
    """Return the value of a constant expression that a config can hold; ``MISSING`` for any other."""
    match node:
        case ast.Name(id=name):
            return (constants or {}).get(name, MISSING)
        case ast.BinOp(left=left, op=ast.Pow() | ast.Mult() | ast.Div() as operator, right=right):
            values = literal(left, constants), literal(right, constants)
            return _computed(operator, values)
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return MISSING
    return value if _is_plain(value) else MISSING


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_is_plain(each) for pair in value.items() for each in pair)
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, int | float | str | None)


def _computed(operator: ast.operator, values: tuple[Any, Any]) -> Any:
    left, right = values
    if not all(type(value) in (int, float) and abs(value) <= 10**6 for value in values):
        return MISSING
    try:
        if isinstance(operator, ast.Pow):
            return left**right if abs(right) <= 64 else MISSING
        return left * right if isinstance(operator, ast.Mult) else left / right
    except (ZeroDivisionError, OverflowError):
        return MISSING
