"""Reads the options of a script whose options are module-level values, as in nanoGPT: the script executes a file that
replaces them by the values of ``--name=value``."""

from __future__ import annotations

import ast

from sweeps.scaffold.option import Option
from sweeps.scaffold.syntax import literal, name_of

RELATED = ("n_head", "n_embd")
"""Module-level values of nanoGPT-like scripts: the first must divide the second."""


def read_options(tree: ast.Module) -> list[Option]:
    """Return the values above the line that executes a file; empty if there is no such line."""
    until = next((node.lineno for node in tree.body if _executes_a_file(node)), 0)
    options = []
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name), *_], value=expression)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as expression)
            ) if node.lineno < until and not name.startswith("_"):
                value = literal(expression)
                if isinstance(value, int | float | str):
                    excluded = "depends on another value; search both with a constraint" if name in RELATED else None
                    options.append(Option(name, type(value).__name__, value, excluded=excluded))
    return options


def checkpoint_file(tree: ast.Module) -> str:
    """Return the name of the checkpoint file in ``out_dir`` that ``init_from="resume"`` loads, as in nanoGPT; empty if
    the script has no such value."""
    choices = {option.name: option.default for option in read_options(tree)}
    if choices.get("init_from") != "scratch" or "out_dir" not in choices:
        return ""
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    saved = [node.args[1] for node in ast.walk(tree) if isinstance(node, ast.Call) and _saves(node)]
    names = [each.value for node in saved for each in ast.walk(node) if isinstance(each, ast.Constant)]
    found = [name for name in names if isinstance(name, str) and "." in name]
    return found[0].rpartition("/")[2] if found and "resume" in words else ""


def _saves(node: ast.Call) -> bool:
    return name_of(node.func) == "save" and len(node.args) > 1


def _executes_a_file(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or name_of(call.func) != "exec":
        return False
    return any(isinstance(each, ast.Call) and name_of(each.func) == "open" for each in ast.walk(call))
