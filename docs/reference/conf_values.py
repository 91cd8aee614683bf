"""Examples for keys whose type alone suggests none: values that the shipped configs set, and those of
``examples.yaml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from sweeps.folders.conf_folders import conf_folder

OTHER_DOCUMENTS = ("schedule", "service")
"""Folders whose files are no part of a sweep."""


@cache
def shipped_values(document: str) -> dict[str, Any]:
    """Return the first value that a shipped config sets for each path.

    Args:
        document: ``sweep``, or the folder of another kind of file: ``schedule`` or ``service``.
    """
    root = conf_folder()
    files = sorted((root / document).rglob("*.yaml")) if document in OTHER_DOCUMENTS else sorted(root.rglob("*.yaml"))
    found: dict[str, Any] = {}
    for file in files:
        folder = file.parent.relative_to(root)
        if document not in OTHER_DOCUMENTS and folder.parts[:1] in {(each,) for each in OTHER_DOCUMENTS}:
            continue
        prefix = "" if document in OTHER_DOCUMENTS else ".".join(folder.parts)
        for path, value in _flat(prefix, _read(file)):
            found.setdefault(path, value)
    return found


@cache
def written_examples() -> dict[str, dict[str, Any]]:
    """Return the examples of ``examples.yaml``, by document and path."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(
        (Path(__file__).parent / "examples.yaml").read_text(encoding="utf-8")
    )
    return found


def _read(file: Path) -> Mapping[str, Any]:
    return {
        name: value for name, value in yaml.safe_load(file.read_text(encoding="utf-8")).items() if name != "defaults"
    }


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        path = f"{prefix}.{name}".lstrip(".")
        if isinstance(value, Mapping):
            if value and "{" not in str(list(value.values())):
                yield path, {name: _number(each) for name, each in value.items()}
            yield from _flat(path, value)
        elif value not in (None, [], "", "???") and "${" not in str(value):
            yield path, _number(value)


def _number(value: Any) -> Any:
    """Convert ``1e-3``, which PyYAML reads as text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
