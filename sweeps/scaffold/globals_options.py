"""Read the options of a script that takes its module's own values as options, as nanoGPT does: a file that it executes
replaces them by what ``--name=value`` says."""

from __future__ import annotations

import ast

from sweeps.scaffold.option import MISSING, Option
from sweeps.scaffold.syntax import literal, name_of

RELATED = ("n_head", "n_embd")
"""Values of which one must divide the other."""


def read_options(tree: ast.Module) -> list[Option]:
    """Return the values above the line that executes a file; none if there is no such line."""
    until = next((node.lineno for node in tree.body if _executes_a_file(node)), 0)
    options = []
    for node in tree.body:
        if node.lineno >= until or not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name, value = node.targets[0].id, literal(node.value)
        if value is MISSING or name.startswith("_") or not isinstance(value, int | float | str):
            continue
        excluded = "depends on another value; search both with a constraint" if name in RELATED else None
        options.append(Option(name, type(value).__name__, value, excluded=excluded))
    return options


def _executes_a_file(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or name_of(call.func) != "exec":
        return False
    return any(isinstance(each, ast.Call) and name_of(each.func) == "open" for each in ast.walk(call))
