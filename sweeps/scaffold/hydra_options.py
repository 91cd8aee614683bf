"""Read the options of a Hydra application: the values of its config."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from sweeps.errors import UserError
from sweeps.scaffold.option import MISSING, Option
from sweeps.scaffold.syntax import literal, name_of

OTHER_SECTIONS = ("hydra", "paths", "extras", "callbacks", "logger", "debug")
"""Sections of an application's config that do not say what it trains."""


class LightningLog(NamedTuple):
    """Metrics that Lightning's CSV logger writes."""

    word: str
    """Override that chooses the logger."""
    source: dict[str, str]
    """An item of ``task.read``."""
    metric: str


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
        if group.startswith(("hydra", "override ", "optional ")):
            continue
        if not of_group.is_file():
            notes.append(f"{of_group}: is not there, or is chosen elsewhere; its values are not read")
            continue
        found = _flatten({key: each for key, each in _load(of_group).items() if key != "defaults"}, f"{group}.")
        options = dict(found) | options
    return [_option(name, value) for name, value in options.items() if not _is_other(name)], notes


def _is_other(name: str) -> bool:
    return "." in name and name.partition(".")[0] in OTHER_SECTIONS


def lightning_log(script: Path, config: HydraConfig, options: Sequence[Option]) -> LightningLog | None:
    """Return where an application of Lightning logs its metrics, if its config has a CSV logger to choose."""
    folder = script.parent / config.folder
    targets = [str(each.default) for each in options if each.name.endswith("_target_")]
    if not any("lightning" in each and each.endswith("Trainer") for each in targets):
        return None
    logger = _load(folder / "logger" / "csv.yaml") if (folder / "logger" / "csv.yaml").is_file() else {}
    name = str((logger.get("csv") or {}).get("name") or "lightning_logs").strip("/")
    monitored = [
        str(value)
        for file in sorted(folder.glob("callbacks/*.yaml"))
        for key, value in _flatten(_load(file))
        if key.rpartition(".")[2] == "monitor" and isinstance(value, str) and value not in ("???", "")
    ]
    if not logger:
        return None
    path = f"{{trial.folder}}/hydra/{name}/version_0/metrics.csv"
    return LightningLog("logger=csv", {"kind": "csv", "path": path}, (monitored or ["val/loss"])[0])


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
