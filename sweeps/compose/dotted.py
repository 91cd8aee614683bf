"""Dotted paths into nested mappings: ``model.lora.r``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

MISSING = object()


def find(values: Any, path: str) -> Any:
    """Return the value at a path, or ``MISSING``."""
    keys = keys_of(values, path)
    if keys is None:
        return MISSING
    for key in keys:
        values = values[key]
    return values


def replace_at(values: Any, path: str, value: Any) -> None:
    """Replace the existing value at a path."""
    *sections, name = keys_of(values, path) or [path]
    for section in sections:
        values = values[section]
    values[name] = value


def keys_of(values: Any, path: str) -> list[str] | None:
    """Return the keys that lead to the value at a path, where a key may itself contain dots; None if there is no value.

    >>> keys_of({"arguments": {"model.lr": 0.1}}, "arguments.model.lr")
    ['arguments', 'model.lr']
    """
    return _keys(values, path.split("."))


def _keys(values: Any, parts: Sequence[str]) -> list[str] | None:
    if not parts:
        return []
    for length in range(1, len(parts) + 1) if isinstance(values, Mapping) else ():
        key = ".".join(parts[:length])
        if key in values and (rest := _keys(values[key], parts[length:])) is not None:
            return [key, *rest]
    return None


def nested(path: str) -> str:
    """Return a path as it is written in YAML, for messages.

    >>> nested("train.lr")
    'train: {lr: VALUE}'
    """
    return path.replace(".", ": {") + ": VALUE" + "}" * path.count(".")


def set_name_with_dots(values: Any, path: str, value: Any) -> bool:
    """Set a value whose own name has dots, as ``arguments: {model.lr: 0.1}``; return False if there is no such name."""
    parts = path.split(".")
    for index, part in enumerate(parts[:-1]):
        name = ".".join(parts[index:])
        if not isinstance(values, dict):
            return False
        if name in values:
            values[name] = value
            return True
        values = values.get(part)
    return False


def leaves(values: Any, prefix: str = "", without: Collection[str] = ()) -> list[str]:
    """Return the paths of all values that are not mappings, except those under a name in ``without``."""
    if not isinstance(values, Mapping):
        return [prefix.removesuffix(".")]
    return [leaf for name in values if name not in without for leaf in leaves(values[name], f"{prefix}{name}.")]
