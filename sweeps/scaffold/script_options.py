"""Reads the options of a script from its source, without importing it: argparse, dataclasses, or Hydra."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sweeps.errors import UserError
from sweeps.scaffold import argparse_options, dataclass_options, globals_options, hydra_options
from sweeps.scaffold.option import Option
from sweeps.scaffold.printed_lines import METRIC_NAMES, is_metric, printed_patterns, rank
from sweeps.scaffold.syntax import name_of

Style = Literal["argparse", "dataclass", "hydra", "globals"]
OF_A_LAUNCHED_SCRIPT = (
    *("SWEEPS_", "init_process_group", "init_distributed", "LOCAL_RANK", "WORLD_SIZE", "Accelerator(", "Fabric("),
)
"""Texts in the source of a script that runs under torchrun, as programs do not."""


@dataclass(frozen=True)
class ScriptOptions:
    """Options and metrics of a script, as far as its source shows them."""

    style: Style
    options: list[Option]
    metrics: list[str] = field(default_factory=list)
    """Metrics that the script prints as JSON, or that ``read`` finds."""
    read: list[dict[str, str]] = field(default_factory=list)
    """Items of ``task.read`` for a program that does not print its metrics as JSON."""
    checkpoint: str = ""
    """File from which a program continues with ``--init_from=resume``."""
    words: list[str] = field(default_factory=list)
    """Additional words of a program's command."""
    notes: list[str] = field(default_factory=list)
    """Remarks about parts of the script that could not be read."""

    @property
    def is_program(self) -> bool:
        """Whether the script is started as a program: its options are Hydra's or global variables, or its metrics are
        not printed as JSON."""
        return self.style in ("hydra", "globals") or bool(self.read)

    @property
    def is_nested(self) -> bool:
        return any("." in option.name for option in self.options)


def read_script(path: Path) -> ScriptOptions:
    """Read the options and metrics of a script.

    Raises:
        UserError: The file cannot be read, is not Python, or shows no options.
    """
    tree = _parse(path)
    hydra = hydra_options.config_of(tree)
    if hydra is not None:
        options, notes = hydra_options.read_options(path, tree, hydra)
        style: Style = "hydra"
    elif options := globals_options.read_options(tree):
        notes, style = [], "globals"
    else:
        options, notes = argparse_options.read_options(tree)
        of_dataclasses, more_notes = dataclass_options.read_options(tree)
        style = "dataclass" if of_dataclasses else "argparse"
        options, notes = [*options, *of_dataclasses], [*notes, *more_notes]
    if not options:
        raise UserError(
            f"{path}: shows no options; --from reads add_argument(...) of argparse, dataclasses that "
            "HfArgumentParser or tyro takes, the config of hydra.main, and values above exec(open(...).read()); a "
            "function for Ray Train, a Trainer or a Lightning module is named on the command line "
            "(docs/bring_your_own.md), any other program is started with task=command (docs/any_program.md), and "
            "`init --kind=script` writes one that shows them"
        )
    unique = list({option.name: option for option in options}.values())
    metrics, sources, words = printed_metrics(tree), list[dict[str, str]](), list[str]()
    if hydra is not None and not metrics:
        metrics, sources, words = hydra_options.lightning_log(path, hydra, unique)
    source = path.read_text(encoding="utf-8", errors="replace")
    is_launched = any("." in option.name for option in unique) or any(text in source for text in OF_A_LAUNCHED_SCRIPT)
    if not metrics and (style in ("hydra", "globals") or not (is_launched or _printed_json(tree))):
        metrics, sources = printed_patterns(tree)
        sources = sources or [{"kind": "json"}, {"kind": "dict"}]
    checkpoint = globals_options.checkpoint_file(tree) if style == "globals" else ""
    return ScriptOptions(style, unique, metrics, sources, checkpoint, words, notes)


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except OSError as error:
        raise UserError(f"--from={path}: cannot be read ({error.strerror})") from None
    except SyntaxError as error:
        raise UserError(f"{path}, line {error.lineno}: is not valid Python ({error.msg})") from None
    except ValueError as error:  # null bytes
        raise UserError(f"{path}: is not valid Python ({error})") from None


def _printed_json(tree: ast.Module) -> list[ast.expr]:
    """Return what the script prints as JSON, other than its options. What it writes into a file may be its
    checkpoint."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    writes = (each for each in calls if name_of(each.func) in ("write", "write_text"))
    in_files = {id(node) for each in writes if "stdout" not in ast.unparse(each.func) for node in ast.walk(each)}
    found = []
    for call in (each for each in calls if each.args and id(each) not in in_files):
        name, of_options = name_of(call.func), ast.unparse(call.args[0]).startswith("vars(")
        is_json = name == "dumps" or (name == "dump" and "stdout" in ast.unparse(call))
        if is_json and not of_options and "pickle" not in ast.unparse(call.func):
            found.append(call.args[0])
    return found


def printed_metrics(tree: ast.Module) -> list[str]:
    """Return the keys that look like metrics, the held-out ones first, from mappings that the script prints as JSON
    (``print(json.dumps({"loss": ...}))``)."""
    keys: dict[str, None] = {}
    for printed in _printed_json(tree):
        for mapping in _mappings(printed, tree):
            for key in mapping.keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    keys[key.value] = None
    names = [key for key in keys if is_metric(key)]
    places = {key: next(at for at, part in enumerate(METRIC_NAMES) if part in key.lower()) for key in names}
    return sorted(names, key=lambda key: (rank(key), places[key]))


def _mappings(node: ast.expr, tree: ast.Module) -> list[ast.Dict]:
    """Return the mappings from which an expression is built; for a variable, everything that is assigned to it
    anywhere."""
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
