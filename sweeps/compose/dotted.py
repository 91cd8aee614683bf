"""Dotted paths into nested mappings: ``model.lora.r``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

MISSING = object()


def find(values: Any, path: str) -> Any:
    """Return the value at a path, or ``MISSING``."""
    for part in path.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return MISSING
        values = values[part]
    return values


def leaves(values: Any, prefix: str = "", without: Collection[str] = ()) -> list[str]:
    """Return the paths of all values that are not mappings, except those below the names of ``without``."""
    if not isinstance(values, Mapping):
        return [prefix.removesuffix(".")]
    return [leaf for name in values if name not in without for leaf in leaves(values[name], f"{prefix}{name}.")]
