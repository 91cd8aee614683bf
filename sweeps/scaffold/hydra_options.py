"""Reads the options of a Hydra application: the values of its config."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from sweeps.errors import UserError
from sweeps.scaffold.config_store import Stored, stored_options
from sweeps.scaffold.option import MISSING, Option
from sweeps.scaffold.syntax import literal, name_of

OTHER_SECTIONS = ("hydra", "paths", "extras", "callbacks", "logger", "debug")
"""Sections of an application's config that do not affect training."""


HYDRA_FOLDER_OF_TRIAL = 'hydra.run.dir="{trial.folder}/hydra"'
"""Override for Hydra's run folder: Hydra's default is named after the time in seconds, so that two trials could share
one. It is quoted, since the folder's name may contain characters of Hydra's grammar."""
GLOBAL_PACKAGE = re.compile(r"(#.*\n)*#\s*@package\s+_global_")


class _Loader(yaml.SafeLoader):
    """Loader for which a date is a text, as it is for Hydra."""


_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda _, node: node.value)


class DefaultsEntry(NamedTuple):
    group: str
    """Group of the entry; empty for another top-level config."""
    option: str
    prefix: str
    """Prefix of the paths of the entry's values."""


class HydraConfig(NamedTuple):
    """Folder and name of the config of ``@hydra.main``."""

    folder: str
    name: str


def config_of(tree: ast.Module) -> HydraConfig | None:
    """Return the config path and name of ``@hydra.main(config_path=..., config_name=...)``; None without that
    decorator."""
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


def read_options(script: Path, tree: ast.Module, config: HydraConfig) -> tuple[list[Option], list[str]]:
    """Return the values of a Hydra config, including those of its defaults, and descriptions of those that could not be
    read.

    Args:
        script: The application.
        tree: The application's source, which may put dataclasses into Hydra's ``ConfigStore``.
        config: Folder and name of its config.

    Raises:
        UserError: The config cannot be read.
    """
    folder, stored = script.parent / config.folder, stored_options(tree)
    file = folder / f"{config.name}.yaml"
    notes: list[str] = []
    options: dict[str, Option] = {}
    if not file.is_file() and ("", config.name) in stored:
        return [each for each in stored["", config.name] if not _is_other(each.name)], notes
    values = _load(file)
    for entry in _defaults(values):
        found = _options_of(entry, folder, stored)
        if found is None:
            of_entry = folder / entry.group / f"{entry.option}.yaml"
            notes.append(f"{of_entry}: is not there, or is chosen elsewhere; its values are not read")
            continue
        options |= {each.name: each for each in found}
        if entry.group and len(others := _names_of(entry.group, folder, stored)) > 1:
            group = Option(entry.group, "str", entry.option, others, excluded="its values depend on the option")
            options[entry.group] = group
    own = {key: value for key, value in values.items() if key not in ("defaults", "hydra")}
    options |= {name: _option(name, value) for name, value in _flatten(own)}
    return [each for each in options.values() if not _is_other(each.name)], notes


def _options_of(entry: DefaultsEntry, folder: Path, stored: Stored) -> list[Option] | None:
    """Return the options of an entry of the defaults list, from its file or the ``ConfigStore``; None if neither has
    it."""
    file = folder / entry.group / f"{entry.option}.yaml"
    if file.is_file():
        values = {key: each for key, each in _load(file).items() if key != "defaults"}
        prefix = "" if GLOBAL_PACKAGE.match(file.read_text(encoding="utf-8")) else entry.prefix
        return [_option(name, value) for name, value in _flatten(values, prefix)]
    options = stored.get((entry.group, entry.option))
    return options and [replace(each, name=entry.prefix + each.name) for each in options]


def _names_of(group: str, folder: Path, stored: Stored) -> tuple[str, ...]:
    files = {file.stem for file in (folder / group).glob("*.yaml")}
    return tuple(sorted(files | {name for of_group, name in stored if of_group == group}))


def _is_other(name: str) -> bool:
    return "." in name and name.partition(".")[0] in OTHER_SECTIONS


def lightning_log(
    script: Path, config: HydraConfig, options: Sequence[Option]
) -> tuple[list[str], list[dict[str, str]], list[str]]:
    """Return the metric that a Lightning application logs, the item of ``task.read`` that finds it, and the override
    that chooses the logger; three empty lists if its config offers no CSV logger."""
    folder = script.parent / config.folder
    targets = [str(each.default) for each in options if each.name.endswith("_target_")]
    is_lightning = any("lightning" in each and each.endswith("Trainer") for each in targets)
    file = folder / "logger" / "csv.yaml"
    logger = _load(file) if is_lightning and file.is_file() else {}
    if not logger:
        return [], [], []
    name = str((logger.get("csv") or {}).get("name") or "lightning_logs").strip("/")
    monitored = [
        value
        for file in sorted(folder.glob("callbacks/*.yaml"))
        for key, value in _flatten(_load(file))
        if key.rpartition(".")[2] == "monitor" and isinstance(value, str) and value not in ("???", "")
    ]
    path = f"{{trial.folder}}/hydra/{name}/version_0/metrics.csv"
    return [*monitored, "val/loss"][:1], [{"kind": "csv", "path": path}], ["logger=csv"]


def _load(file: Path) -> dict[str, Any]:
    try:
        loaded = yaml.load(file.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a safe loader
    except OSError as error:
        raise UserError(f"{file}: the script's config cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: is not YAML ({' '.join(str(error).split())})") from None
    return loaded if isinstance(loaded, dict) else {}


def _defaults(values: Mapping[str, Any]) -> Iterator[DefaultsEntry]:
    for entry in values.get("defaults") or []:
        if isinstance(entry, str) and entry != "_self_":
            path, _, package = entry.strip("/").partition("@")
            yield DefaultsEntry("", path, _prefix(package or path.rpartition("/")[0].replace("/", ".")))
        elif isinstance(entry, dict):
            for text, option in entry.items():
                group, _, package = str(text).strip("/").partition("@")
                if isinstance(option, str) and not group.startswith(("hydra", "override ", "optional ")):
                    yield DefaultsEntry(group, option, _prefix(package or group.replace("/", ".")))


def _prefix(package: str) -> str:
    return "" if package in ("", "_global_") else f"{package}."


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
        excluded = "does not belong to the training"
    return Option(name, default=MISSING if value is None else value, excluded=excluded)
