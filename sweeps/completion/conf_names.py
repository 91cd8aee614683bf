"""Names and values of confs, read from the YAML files without composing them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from sweeps.folders.conf_folders import ConfFolders

MAX_INHERITED = 5
"""Maximum levels of inheritance between confs that are read."""


class ConfNames(ConfFolders):
    """Confs, groups, options and values in the folders of configs."""

    def described(self, group: str = "") -> dict[str, str]:
        """Return the options of a group with the first line of each, users' own first; without a group, the confs."""
        files = [file for folder in self.folders for file in sorted((folder / group).glob("*.yaml"))]
        names = dict.fromkeys(file.stem for file in files if not file.name.startswith("_"))
        return {name: self.header(f"{group}/{name}" if group else name) for name in names}

    def values(self, conf: str) -> dict[str, Any]:
        """Return the values that a conf's YAML sets, with the options that its defaults choose, uncomposed."""
        return self._values(conf, "", MAX_INHERITED)

    def chosen(self, conf: str) -> dict[str, str]:
        """Return the option that a conf chooses for each group, in the order of its defaults."""
        return self._chosen(conf, "", MAX_INHERITED)

    def _chosen(self, option: str, group: str, levels: int) -> dict[str, str]:
        found: dict[str, str] = {}
        for inner_group, inner in (
            _defaults(_load(self.file(f"{group}/{option}" if group else option))) if levels else ()
        ):
            whole = f"{group}/{inner_group}" if group and inner_group else inner_group or group
            if inner_group:
                found[whole] = inner
            found |= self._chosen(inner, whole, levels - 1)
        return found

    def _values(self, option: str, group: str, levels: int) -> dict[str, Any]:
        file = self.file(f"{group}/{option}" if group else option)
        if group == "" and option.endswith(".yaml"):
            file = Path(option)
        own = _load(file)
        merged: dict[str, Any] = {}
        for inner_group, inner in _defaults(own) if levels else ():
            whole = f"{group}/{inner_group}" if group and inner_group else inner_group
            inherited = self._values(inner, whole, levels - 1)
            _merge(merged, {inner_group: inherited} if inner_group else inherited)
        _merge(merged, {key: value for key, value in own.items() if key != "defaults"})
        return merged


def _defaults(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the group and option of each entry of the defaults list; the group of an inherited conf is empty."""
    entries = values.get("defaults")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, str) and entry != "_self_":
            yield "", entry
        elif isinstance(entry, dict):
            for group, option in entry.items():
                if isinstance(option, str):
                    yield str(group).removeprefix("override ").strip("/ "), option


def _load(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        loaded = yaml.load(file.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except (OSError, yaml.YAMLError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _merge(target: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, Mapping) and isinstance(target.get(str(key)), dict):
            _merge(target[str(key)], value)
        else:
            target[str(key)] = dict(value) if isinstance(value, Mapping) else value
