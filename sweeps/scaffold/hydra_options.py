"""Read the options of a Hydra application: the values of its config."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from sweeps.errors import UserError
from sweeps.scaffold.option import MISSING, Option
from sweeps.scaffold.syntax import literal, name_of


class HydraConfig(NamedTuple):
    """Folder and name of the config of ``@hydra.main``."""

    folder: str
    name: str


def config_of(tree: ast.Module) -> HydraConfig | None:
    """Return what ``@hydra.main(config_path=..., config_name=...)`` says; None without one."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and _is_hydra_main(decorator.func):
                given = {each.arg: literal(each.value) for each in decorator.keywords}
                given |= dict(zip(("config_path", "config_name"), map(literal, decorator.args), strict=False))
                folder, name = given.get("config_path"), given.get("config_name", "config")
                return HydraConfig(folder if isinstance(folder, str) else ".", str(name).removesuffix(".yaml"))
    return None


def _is_hydra_main(node: ast.expr) -> bool:
    return name_of(node) == "main" and isinstance(node, ast.Attribute) and name_of(node.value) == "hydra"


def read_options(script: Path, config: HydraConfig) -> tuple[list[Option], list[str]]:
    """Return the values of a Hydra config with those of its default groups, and what could not be read.

    Raises:
        UserError: The config cannot be read.
    """
    folder = script.parent / config.folder
    file = folder / f"{config.name}.yaml"
    notes: list[str] = []
    values = _load(file)
    options = dict(_flatten({key: value for key, value in values.items() if key not in ("defaults", "hydra")}))
    for group, option in _defaults(values):
        of_group = folder / group / f"{option}.yaml"
        if group.startswith(("hydra/", "override ")):
            continue
        if not of_group.is_file():
            notes.append(f"{of_group}: is not there, or is chosen elsewhere; its values are not read")
            continue
        found = _flatten({key: each for key, each in _load(of_group).items() if key != "defaults"}, f"{group}.")
        options = dict(found) | options
    return [_option(name, value) for name, value in options.items()], notes


def _load(file: Path) -> dict[str, Any]:
    try:
        loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{file}: the script's config cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: is no YAML ({' '.join(str(error).split())})") from None
    return loaded if isinstance(loaded, dict) else {}


def _defaults(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for entry in values.get("defaults") or []:
        if isinstance(entry, dict):
            yield from ((str(group), str(option)) for group, option in entry.items() if isinstance(option, str))


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _option(name: str, value: Any) -> Option:
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = float(value)  # 1e-3, which YAML 1.1 takes for a text
    if value == "???":
        return Option(name, required=True)
    excluded = None
    if isinstance(value, list):
        excluded = "is a list"
    elif isinstance(value, str) and "${" in value:
        excluded = "follows another value"
    elif name.rpartition(".")[2].startswith("_"):
        excluded = "is no value of the training"
    return Option(name, default=MISSING if value is None else value, excluded=excluded)
