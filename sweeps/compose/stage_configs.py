"""Changes of the config that a stage of ``search.stages`` makes, composed with Hydra like the sweep itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import Override

from sweeps.compose.composition import resolve
from sweeps.compose.overrides import check_option, hydra_token, parse_overrides
from sweeps.compose.schema_errors import read_config
from sweeps.config.search import Stage
from sweeps.errors import ConfigError, UnknownName
from sweeps.folders.conf_folders import ConfFolders

SECTIONS = ("task", "model", "data", "train", "strategy", "checkpoint")
"""Sections that a stage may change; the others belong to the whole sweep."""

Compose = Callable[[Mapping[str, str], Sequence[str]], dict[str, Any]]
"""Composes the sweep with other options of groups and further arguments of Hydra; returns the unresolved config."""


def stage_changes(
    key: str,
    stage: Stage,
    base: Mapping[str, Any],
    folders: ConfFolders,
    compose: Compose,
) -> dict[str, Any]:
    """Return the unresolved values by dotted path in which a stage differs from its sweep, whose unresolved config is
    ``base``; ``compose`` composes the sweep with the stage's overrides.

    Raises:
        ConfigError: A string is not an override, a stage may not change its key, or the result is not a valid config.
    """
    options: dict[str, str] = {}
    values: list[str] = []
    for index, text in enumerate(stage.overrides):
        try:
            override = _checked(text, base["space"], folders)
        except ConfigError as error:
            raise ConfigError(f"{key}.overrides.{index}={text}: {error}") from None
        if folders.is_group(override.key_or_group) and isinstance(override.value(), str):
            options[override.key_or_group] = str(override.value())
        else:
            values.append(hydra_token(override, folders))
    try:
        changed = compose(options, values)
        read_config(resolve({**changed, "space": base["space"]}))
    except (ConfigError, UnknownName) as error:
        lines = str(error).split("\n")
        raise ConfigError("\n".join(f"{key}.overrides={stage.overrides}: {line}" for line in lines)) from None
    changes = dict(_differences(base, {**changed, "space": base["space"]}, ""))
    if not changes:
        raise ConfigError(
            f"{key}.overrides={stage.overrides}: change nothing; give values that differ from the sweep's"
        )
    return changes


def _checked(text: str, space: Collection[str], folders: ConfFolders) -> Override:
    """Return the parsed override.

    Raises:
        ConfigError: A stage may not have this override.
    """
    if "${" in text:
        raise ConfigError("a stage's override cannot have an interpolation; give the value itself")
    (override,) = parse_overrides([text])
    path = override.key_or_group
    if override.is_delete() or override.is_sweep_override():
        raise ConfigError("a stage cannot change the search space; give one value, as in key=value")
    if path in space:
        raise ConfigError(
            f"{path} is searched, in every stage; leave it out, or remove it from the space (~space.{path})"
        )
    if re.split("[./]", path)[0] not in SECTIONS:
        raise ConfigError(
            f"{path} holds for the whole sweep; a stage can change {', '.join(SECTIONS[:-1])} and {SECTIONS[-1]}"
        )
    check_option(override, folders)
    return override


def _differences(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the values that differ. A section counts as one value if it has lost a key, for instance because its kind
    changed."""
    for name, value in after.items():
        old = before.get(name)
        if name in before and old == value:
            continue
        if isinstance(old, Mapping) and isinstance(value, Mapping) and old.keys() <= value.keys() and _has_paths(value):
            yield from _differences(old, value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _has_paths(section: Mapping[str, Any]) -> bool:
    """Whether every value of a section can be reached by a dotted path."""
    return not any("." in str(each) for each in section)
