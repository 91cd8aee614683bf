"""Reads the options that a script adds to an ``ArgumentParser``."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from sweeps.scaffold.option import A_FLAG, MISSING, Option
from sweeps.scaffold.syntax import constants_of, literal, name_of

FLAG_ACTIONS = {"store_true", "store_false", "BooleanOptionalAction", "store_const", "count", "append", "extend"}
"""Actions of argparse whose option is not of the form ``--name=value``."""


def read_options(tree: ast.Module) -> tuple[list[Option], list[str]]:
    """Return the options, and descriptions of those that could not be read."""
    constants = constants_of(tree)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls.sort(key=lambda call: (call.lineno, call.col_offset))
    options: list[Option] = []
    notes: list[str] = []
    for call in calls:
        name = name_of(call.func)
        if name == "add_subparsers":
            notes.append(
                f"line {call.lineno}: subcommands cannot be given by a search; the script must run without one"
            )
        if name != "add_argument" or not isinstance(call.func, ast.Attribute):
            continue
        flags = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        long = [flag for flag in flags if flag.startswith("--")]
        if long:
            options.append(_option(long[0].removeprefix("--"), call, constants))
        elif flags:
            which = "option with one dash" if flags[0].startswith("-") else "positional argument"
            notes.append(
                f"line {call.lineno}: the {which} {flags[0]} cannot be given by a search, which writes --name=value"
            )
        else:
            notes.append(f"line {call.lineno}: an option whose name is computed")
    return options, notes


def _option(name: str, call: ast.Call, constants: Mapping[str, Any]) -> Option:
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    action = given.get("action")
    action_name = (
        action.value if isinstance(action, ast.Constant) else name_of(action) if action is not None else "store"
    )
    choices = literal(given["choices"], constants) if "choices" in given else ()
    default = literal(given["default"], constants) if "default" in given else MISSING
    type_name = name_of(given["type"]) if "type" in given else "str"
    excluded = None
    if action_name in FLAG_ACTIONS:
        excluded = A_FLAG
    elif "nargs" in given and literal(given["nargs"]) != "?":
        excluded = "takes several values"
    elif type_name == "bool":
        excluded = "type=bool takes any text for true"
    elif type_name == "str" and type(default) in (int, float):
        excluded = "without type= the script gets a text"
    return Option(
        name=name,
        type=type_name if type_name in ("float", "int", "str") else None,
        default=default,
        choices=tuple(choices) if isinstance(choices, list | tuple) else (),
        required="required" in given and literal(given["required"]) is True,
        excluded=excluded,
    )
