"""Read the options of a script from its source, without importing it: argparse, dataclasses, or Hydra."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sweeps.errors import UserError

Style = Literal["argparse", "dataclass", "hydra"]
DATACLASS_PARSERS = {"HfArgumentParser", "TrlParser", "cli", "parse", "wrap", "ArgumentParser"}
"""Calls that make options of a dataclass: transformers, trl, tyro, simple_parsing, draccus, pyrallis."""
FLAG_ACTIONS = {"store_true", "store_false", "BooleanOptionalAction", "store_const", "count", "append", "extend"}
"""Actions of argparse whose option is not one ``--name=value``."""
METRIC_NAMES = ("accuracy", "acc", "f1", "auc", "score", "reward", "loss", "error", "perplexity", "rmse", "mae")


class _Missing:
    """The default of an option that has none, or none that the source tells."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()


@dataclass(frozen=True)
class Option:
    """One option of a script."""

    name: str
    """Without dashes; nested ones with dots."""
    type: str | None = None
    """``float``, ``int``, ``str`` or ``bool``; None if the source does not tell."""
    default: Any = MISSING
    choices: tuple[Any, ...] = ()
    required: bool = False
    excluded: str | None = None
    """Why a search cannot set it; None if it can."""

    @property
    def kind(self) -> str | None:
        """The type, or that of the default."""
        if self.type is not None or self.default is MISSING or self.default is None:
            return self.type
        return type(self.default).__name__


@dataclass(frozen=True)
class ScriptOptions:
    """What a script takes and prints, as far as its source tells."""

    style: Style
    options: list[Option]
    metrics: list[str] = field(default_factory=list)
    """Metrics that it prints as JSON."""
    notes: list[str] = field(default_factory=list)
    """What could not be read."""

    @property
    def is_nested(self) -> bool:
        return any("." in option.name for option in self.options)


def read_script(path: Path) -> ScriptOptions:
    """
    Raises:
        UserError: The file cannot be read, is no Python, or shows no options.
    """
    tree = _parse(path)
    from sweeps.scaffold import dataclass_options, hydra_options

    hydra = hydra_options.config_of(tree)
    if hydra is not None:
        options, notes = hydra_options.read_options(path, hydra)
        style: Style = "hydra"
    else:
        options, notes = _argparse_options(tree)
        of_dataclasses, more_notes = dataclass_options.read_options(tree)
        style = "dataclass" if of_dataclasses else "argparse"
        options, notes = [*options, *of_dataclasses], [*notes, *more_notes]
    if not options:
        raise UserError(
            f"{path}: shows no options; --from reads add_argument(...) of argparse, dataclasses that "
            "HfArgumentParser or tyro takes, and the config of hydra.main; `init --kind=script` writes a script "
            "that has some"
        )
    unique = {option.name: option for option in options}
    return ScriptOptions(style, list(unique.values()), printed_metrics(tree), notes)


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except OSError as error:
        raise UserError(f"--from={path}: cannot be read ({error.strerror})") from None
    except SyntaxError as error:
        raise UserError(f"{path}, line {error.lineno}: is no Python ({error.msg})") from None
    except ValueError as error:  # null bytes
        raise UserError(f"{path}: is no Python ({error})") from None


def name_of(node: ast.expr) -> str:
    """Return the last part of a dotted name, or nothing."""
    if isinstance(node, ast.Subscript):
        return name_of(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def constants_of(tree: ast.Module) -> dict[str, Any]:
    """Return the module's constants, such as ``LEARNING_RATE = 1e-3``, which defaults may name."""
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
    """Return the value of a constant expression, ``MISSING`` for any other."""
    match node:
        case ast.Name(id=name):
            return (constants or {}).get(name, MISSING)
        case ast.BinOp(left=left, op=ast.Pow() | ast.Mult() | ast.Div() as operator, right=right):
            values = literal(left, constants), literal(right, constants)
            return _computed(operator, values)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return MISSING


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


# --- argparse -------------------------------------------------------------------------------------------------


def _argparse_options(tree: ast.Module) -> tuple[list[Option], list[str]]:
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
            options.append(_argparse_option(long[0].removeprefix("--"), call, constants))
        elif flags:
            which = "option with one dash" if flags[0].startswith("-") else "positional argument"
            notes.append(
                f"line {call.lineno}: the {which} {flags[0]} cannot be given by a search, which writes --name=value"
            )
        else:
            notes.append(f"line {call.lineno}: an option whose name is computed")
    return options, notes


def _argparse_option(name: str, call: ast.Call, constants: Mapping[str, Any]) -> Option:
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
        excluded = "a flag, which takes no value"
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


# --- metrics --------------------------------------------------------------------------------------------------


def printed_metrics(tree: ast.Module) -> list[str]:
    """Return the keys of mappings that the script writes as JSON (``print(json.dumps({"loss": ...}))``), those that
    look like metrics first."""
    keys: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name_of(node.func) == "dumps" and node.args:
            for mapping in _mappings(node.args[0], tree):
                keys |= {
                    key.value: None for key in mapping.keys if isinstance(key, ast.Constant) and _is_text(key.value)
                }
    names = [key for key in keys if any(part in key.lower() for part in METRIC_NAMES)]
    return sorted(names, key=lambda key: next(rank for rank, part in enumerate(METRIC_NAMES) if part in key.lower()))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _mappings(node: ast.expr, tree: ast.Module) -> list[ast.Dict]:
    """Return the mappings that an expression is made of; a variable is what is assigned to it anywhere."""
    match node:
        case ast.Dict(keys=keys, values=values):
            unpacked = [value for key, value in zip(keys, values, strict=True) if key is None]
            return [node, *(found for each in unpacked for found in _mappings(each, tree))]
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return [*_mappings(left, tree), *_mappings(right, tree)]
        case ast.Name(id=name):
            return [
                value
                for each in ast.walk(tree)
                if isinstance(each, ast.Assign) and isinstance(value := each.value, ast.Dict)
                if any(isinstance(target, ast.Name) and target.id == name for target in each.targets)
            ]
    return []
