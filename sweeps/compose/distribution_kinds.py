"""Replaces an inherited distribution by one of another kind, without the inherited kind's keys. Hydra merges mappings,
so choices that replace a range would keep the range's keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

DISTRIBUTION_KEYS = {"type", "low", "high", "log", "step", "choices", "value", "when", "prior"}
_RANGE = ("low", "high", "log", "step")
FOREIGN = {
    **dict.fromkeys(("float", "int"), ("choices", "value")),
    **dict.fromkeys(("categorical", "ordinal"), (*_RANGE, "value")),
    "constant": (*_RANGE, "choices"),
}
"""Keys that belong to other kinds, by ``type``."""


def remove_foreign_keys(space: DictConfig) -> None:
    """Set keys that a distribution's kind lacks to null, in the space of one file, so that merging removes inherited
    ones."""
    container = OmegaConf.to_container(space, resolve=False)
    for path, kind in _kinds(container, ()):
        distribution = space
        for key in path:
            distribution = distribution[key]
        for key in FOREIGN[kind]:
            if key not in distribution:
                with open_dict(distribution):
                    distribution[key] = None


def _kinds(values: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path of each distribution with a ``type``, and that type."""
    if not isinstance(values, Mapping):
        return
    if isinstance(kind := values.get("type"), str):
        if kind in FOREIGN:
            yield path, kind
        return
    for name, value in values.items():
        yield from _kinds(value, (*path, name))


def of_its_kind(distribution: Mapping[str, Any]) -> dict[str, Any]:
    """Return a distribution without the keys that null removes. Only the value of a constant may itself be null."""
    is_constant = distribution.get("type") == "constant"
    return {
        key: value
        for key, value in distribution.items()
        if value is not None or key not in DISTRIBUTION_KEYS or (key == "value" and is_constant)
    }
