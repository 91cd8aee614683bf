"""The search space of a config: from YAML, from overrides, and from the options of searched groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from sweeps.compose.composition import Variant, resolve
from sweeps.compose.distribution_kinds import DISTRIBUTION_KEYS, FOREIGN, of_its_kind
from sweeps.compose.dotted import find
from sweeps.compose.other_tools import is_distribution_elsewhere
from sweeps.compose.schema_errors import read_config
from sweeps.config import SweepConfig
from sweeps.config.space import CategoricalDistribution, ConstantDistribution, OrdinalDistribution
from sweeps.errors import ConfigError, UnknownName
from sweeps.folders.conf_folders import ConfFolders
from sweeps.texts.suggestions import did_you_mean
from sweeps.texts.wording import value_text

FlatSpace = dict[str, Any]
"""Distributions by dotted path, in the form of YAML."""


def first_value(distribution: Any) -> Any:
    """Return an example value of a distribution, which may be invalid; None if it has none."""
    if not isinstance(distribution, Mapping):
        return None
    choices = distribution.get("choices")
    return choices[0] if isinstance(choices, list) and choices else distribution.get("low", distribution.get("value"))


def space_in(container: Mapping[str, Any]) -> FlatSpace:
    """Return the space of an unresolved config by dotted path.

    Raises:
        ConfigError: It is not a mapping.
    """
    space = container.get("space") or {}
    if isinstance(space, str):  # an interpolation, or a mistake
        space = OmegaConf.select(OmegaConf.create(dict(container)), "space", throw_on_resolution_failure=False)
        space = OmegaConf.to_container(space) if isinstance(space, DictConfig) else container["space"]
    if not isinstance(space, Mapping):
        example = "{train.lr: {type: float, low: 0.001, high: 0.1}}"
        raise ConfigError(f"space={space}: must be distributions by path, as in space: {example}")
    return flatten_space(space)


def flatten_space(space: Mapping[str, Any]) -> FlatSpace:
    """Return a space by dotted path: ``{train: {lr: {type: float}}}`` means ``{train.lr: {type: float}}``. Null removes
    a path; of a path that is written in both forms, the last one counts."""
    flat = dict(_by_path(space))
    return {
        path: of_its_kind(value) if isinstance(value, Mapping) else value
        for path, value in flat.items()
        if value is not None
    }


def _by_path(space: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in space.items():
        if _is_section(value):
            yield from _by_path(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _is_section(value: Any) -> bool:
    """Whether a mapping is a section that holds distributions, and not a distribution itself."""
    if not isinstance(value, Mapping) or not value:
        return False
    return not DISTRIBUTION_KEYS & {str(key) for key in value} and not is_distribution_elsewhere(value)


def change_space(space: dict[str, Any], override: Override) -> None:
    """Apply an override of ``space.PATH`` or ``space.PATH.FIELD``.

    Raises:
        UserError: The path does not exist, or the value is not a distribution.
    """
    path = override.key_or_group.removeprefix("space.")
    owner, _, name = path.rpartition(".")
    value = override.value()
    if override.is_sweep_override():
        raise ConfigError(
            f"{override.input_line}: write a range without `space.`, or a distribution as in "
            f"'space.{path}={{type: float, low: 0, high: 1}}'"
        )
    if override.is_delete() or (value is None and path in space):
        if space.pop(path, None) is None:
            raise UnknownName(f"~space.{path}: the space has no such path{did_you_mean(path, space)}")
    elif owner in space:
        before = _keys_of(space[owner])
        changed = {**before, name: value}
        if name == "type" and value != before.get("type"):
            changed |= dict.fromkeys(FOREIGN.get(str(value), ()))
        space[owner] = of_its_kind(changed)
    elif isinstance(value, Mapping):
        before = _keys_of(space.get(path))
        same_kind = value.get("type", before.get("type")) == before.get("type")
        space[path] = {**(before if same_kind else {}), **value}
    elif (found := _key_of_mapping(space, path)) is not None:
        parameter, mapping, key = found
        whole = f"'space.{parameter}.{mapping}={{{key}: {value_text(value)}}}'"
        raise ConfigError(f"{override.input_line}: {mapping} is set as a whole; write {whole}")
    elif name in DISTRIBUTION_KEYS:
        raise UnknownName(f"{override.key_or_group}: the space has no path {owner!r}{did_you_mean(owner, space)}")
    else:
        raise ConfigError(
            f"{override.key_or_group}={value!r}: must be a distribution, "
            f"such as 'space.{path}={{type: float, low: 0, high: 1}}'"
        )


def _keys_of(distribution: Any) -> Mapping[str, Any]:
    """Return the keys of a distribution; a text in its place, such as a range of another tool, has none."""
    return distribution if isinstance(distribution, Mapping) else {}


def _key_of_mapping(space: dict[str, Any], path: str) -> tuple[str, str, str] | None:
    """Split the path of a key of a condition or a prior into the parameter, ``when`` or ``prior``, and the key."""
    for mapping in ("when", "prior"):
        parameter, _, key = path.partition(f".{mapping}.")
        if key and parameter in space:
            return parameter, mapping, key
    return None


def options_of(config: SweepConfig, group: str) -> list[str]:
    """Return the options of a group that the space searches.

    Raises:
        ConfigError: The distribution cannot search a group.
    """
    distribution = config.space[group]
    match distribution:
        case CategoricalDistribution(choices=choices) | OrdinalDistribution(choices=choices):
            named = {f"choices.{index}": choice for index, choice in enumerate(choices)}
        case ConstantDistribution(value=value):
            named = {"value": value}
        case _:
            raise ConfigError(
                f"space.{group}.type={distribution.type}: {group} is a config group; search it with a categorical or "
                "ordinal of its options"
            )
    for key, option in named.items():
        if not isinstance(option, str):
            raise ConfigError(f"space.{group}.{key}={option!r}: must be the name of an option of {group}")
    return list(named.values())


def check_group_conditions(config: SweepConfig, folders: ConfFolders) -> None:
    """Check that conditions on groups name existing options.

    Raises:
        UnknownName: The condition of a parameter names an unknown option of a group.
    """
    for path, distribution in config.space.items():
        for group, wanted in distribution.when.items():
            if not folders.is_group(group):
                continue
            options = folders.options(group)
            for option in (wanted or [""]) if isinstance(wanted, list) else [wanted]:
                if option not in options:
                    raise UnknownName(
                        f"space.{path}.when.{group}={option!r}: the group {group} has no such option"
                        f"{did_you_mean(str(option), options)}"
                    )


def is_integer(base: Mapping[str, Any], path: str) -> bool:
    """Whether a config value is an integer; for null, whether the schema accepts only integers."""
    config = OmegaConf.create({**base, "space": {}})
    try:
        value = find(read_config(resolve(config)).as_values(), path)
    except ConfigError:
        return False  # reported when the sweep is read
    if value is not None:
        return isinstance(value, int)
    OmegaConf.update(config, path, 0.5)
    try:
        read_config(resolve(config))
    except ConfigError as error:
        return any(line.startswith(f"{path}=") and "valid integer" in line for line in str(error).split("\n"))
    return False


def joined_space(spaces: Mapping[Variant, FlatSpace], searched: Mapping[str, Sequence[str]]) -> FlatSpace:
    """Return the space of a sweep over groups, from that of each combination of options. A path that only some options
    search gets a condition on those options.

    Raises:
        ConfigError: Options give the same path different ranges, or only in some combinations of groups.

    Example:
        >>> deep = {"model.depth": {"type": "int", "low": 2, "high": 8}}
        >>> joined_space({(("model", "deep"),): deep, (("model", "wide"),): {}}, {"model": ["deep", "wide"]})
        {'model.depth': {'type': 'int', 'low': 2, 'high': 8, 'when': {'model': ['deep']}}}
    """
    joined: FlatSpace = {}
    for path in dict.fromkeys(path for space in spaces.values() for path in space):
        having = [options for options, space in spaces.items() if path in space]
        distribution = spaces[having[0]][path]
        for options in having:
            if spaces[options][path] != distribution:
                raise ConfigError(
                    f"space.{path}: {_described(having[0])} and {_described(options)} give it different ranges; "
                    f"rename the path in one of them, or set one range for all in the sweep's own space"
                )
        conditions = _conditions(path, having, spaces, searched)
        own = distribution.get("when", {}) if isinstance(distribution, Mapping) else None
        if conditions and isinstance(own, Mapping):  # else it is a mistake, which the schema names
            distribution = {**distribution, "when": {**own, **conditions}}
        joined[path] = distribution
    return joined


def _conditions(
    path: str, having: Sequence[Variant], spaces: Mapping[Variant, FlatSpace], searched: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    conditions = {
        group: [option for option in options if any((group, option) in each for each in having)]
        for group, options in searched.items()
    }
    allowed = [each for each in spaces if all(option in conditions[group] for group, option in each)]
    if len(allowed) != len(having):
        raise ConfigError(
            f"space.{path}: {_described(having[0])} searches it, but not every combination of these options does; "
            "put it into the sweep's own space, with `when`"
        )
    return {group: options for group, options in conditions.items() if len(options) < len(searched[group])}


def _described(options: Variant) -> str:
    return ", ".join(f"{group}={option}" for group, option in options)
