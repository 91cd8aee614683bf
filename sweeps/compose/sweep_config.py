"""Composition of a sweep from ``conf/``, users' folders and overrides, with Hydra."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any

from hydra import compose
from hydra.conf import HydraConf
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict

from sweeps.compat.hydra import compose_without_hydra
from sweeps.compose.composition import Composition, Variant, resolve
from sweeps.compose.config_modules import import_config_modules
from sweeps.compose.dotted import find, replace_at, set_name_with_dots
from sweeps.compose.hydra_messages import explain
from sweeps.compose.hydra_settings import check_overrides, check_section, is_of_hydra, refusal
from sweeps.compose.option_spaces import joined_space
from sweeps.compose.overrides import check_option, hydra_token, parse_overrides, parse_values, with_options
from sweeps.compose.ranges import distribution_of_range
from sweeps.compose.schema_errors import read_config
from sweeps.compose.search_path import ConfSearchPath
from sweeps.compose.space_config import (
    change_space,
    check_group_conditions,
    first_value,
    flatten_space,
    is_integer,
    options_of,
)
from sweeps.compose.stage_configs import stage_changes
from sweeps.errors import ConfigError, SweepsError, UnknownName, UserError
from sweeps.texts.suggestions import did_you_mean

MAX_GROUP_COMBINATIONS = 64


def compose_sweep(conf: str, tokens: Sequence[str], search_path: ConfSearchPath) -> Composition:
    """Compose ``conf/CONF.yaml`` with Hydra overrides.

    A range in an override (``train.lr=interval(1e-5, 1e-2)``) is added to the space; a plain value for a searched path
    removes it from the space; ``space.PATH.FIELD=value`` changes a distribution, ``~space.PATH`` removes it, and
    ``~space`` removes all.

    Raises:
        UnknownName: ``conf``, a group's option or a key does not exist.
        ConfigError: The result is not a valid sweep; every mistake is named.
    """
    overrides = parse_overrides(tokens)
    check_overrides({each.key_or_group: str(each.input_line) for each in overrides})
    import_config_modules()
    with search_path:
        groups = set(search_path.groups())
        confs = search_path.confs()
        if conf not in confs:
            raise UnknownName(f"conf={conf}: there is no such conf{did_you_mean(conf, confs)}")
        of_space = [each for each in overrides if each.key_or_group.startswith("space.")]
        ranges = [each for each in overrides if each.is_sweep_override()]
        without_space = [each for each in overrides if each.key_or_group == "space" and each.is_delete()]
        plain = [each for each in overrides if each not in [*of_space, *ranges, *without_space]]
        for each in plain:
            check_option(each, groups, search_path.options)
        arguments = [hydra_token(each, groups) for each in plain]

        base, choices = _compose(conf, arguments, search_path)
        # Hydra's own `~space` only removes the group from the defaults, and not a space that the config itself has.
        space = {} if without_space else flatten_space(base.get("space") or {})

        @cache
        def composed(combination: Variant) -> dict[str, Any]:
            if all(choices.get(group) == option for group, option in combination):
                return base
            return _compose(conf, with_options(arguments, dict(combination)), search_path)[0]

        if not without_space:
            space = _with_spaces_of_options(space, _searched_options(space, overrides, groups, search_path), composed)
        fixed = [each.key_or_group for each in plain if space.pop(each.key_or_group, None) is not None]
        for each in overrides:  # in the order in which they were typed: a range, then one of its fields
            path = each.key_or_group
            if each in of_space:
                change_space(space, each)
            elif each in ranges:
                options = search_path.options(path) if path in groups else None
                space[path] = distribution_of_range(each, options, partial(is_integer, base, path))
        _give_searched(base, space)
        base["space"] = space
        config = read_config(resolve(base))

        check_group_conditions(config, search_path, groups)
        searched = {path: options_of(config, path) for path in space if path in groups}
        count = math.prod(map(len, searched.values()))
        if count > MAX_GROUP_COMBINATIONS:
            raise ConfigError(
                f"space: the groups {', '.join(searched)} have {count:,} combinations of options; "
                f"at most {MAX_GROUP_COMBINATIONS} can be searched together"
            )
        own = tuple(sorted((group, choices[group]) for group in searched))  # may be outside the searched options
        variants = {own: {**base, "space": {}}}
        variants |= {each: {**composed(each), "space": {}} for each in _combinations(searched) if each != own}
        stages = [
            stage_changes(
                f"search.stages.{index}",
                stage,
                base,
                groups,
                search_path.options,
                lambda options, values: _compose(conf, [*with_options(arguments, options), *values], search_path)[0],
            )
            for index, stage in enumerate(config.search.stages)
        ]
    return Composition(
        conf=conf,
        config=config,
        options=choices,
        searched_groups=sorted(searched),
        variants=variants,
        fixed=[path for path in fixed if path not in space],
        stages=stages,
    )


def _give_searched(base: dict[str, Any], space: Mapping[str, Any]) -> None:
    """Set mandatory values that are searched to their first choice."""
    for path, distribution in space.items():
        if find(base, path) == "???" and (first := first_value(distribution)) is not None:
            replace_at(base, path, first)


def _combinations(searched: Mapping[str, Sequence[str]]) -> list[Variant]:
    return [tuple(sorted(zip(searched, each, strict=True))) for each in itertools.product(*searched.values())]


def _with_spaces_of_options(
    space: dict[str, Any], searched: Mapping[str, Sequence[str]], composed: Callable[[Variant], dict[str, Any]]
) -> dict[str, Any]:
    if not searched or math.prod(map(len, searched.values())) > MAX_GROUP_COMBINATIONS:
        return space
    spaces = {each: flatten_space(composed(each).get("space") or {}) for each in _combinations(searched)}
    return joined_space(spaces, searched)


def _searched_options(
    space: Mapping[str, Any], overrides: Sequence[Override], groups: set[str], search_path: ConfSearchPath
) -> dict[str, list[str]]:
    """Return the searched options of groups; mistakes are reported later, by the checks of the whole config."""
    chosen = {path: each for path, each in space.items() if path in groups}
    for each in overrides:
        path = each.key_or_group
        with suppress(UserError):
            if path in groups and each.is_sweep_override():
                chosen[path] = distribution_of_range(each, search_path.options(path), lambda: False)
            elif path in groups:
                chosen.pop(path, None)
            elif path.startswith("space.") and any(f"{path}.".startswith(f"space.{group}.") for group in groups):
                change_space(chosen, each)
    options = {
        path: each.get("choices", [each.get("value")]) for path, each in chosen.items() if isinstance(each, Mapping)
    }
    return {
        path: names
        for path, names in options.items()
        if path in groups and isinstance(names, list) and all(each in search_path.options(path) for each in names)
    }


def _compose(conf: str, arguments: Iterable[str], search_path: ConfSearchPath) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the unresolved config, and the option chosen for each group."""
    arguments = list(arguments)
    try:
        container, choices = _container(conf, arguments)
        check_section(conf, container.pop("hydra", None))
        values = [each for each in arguments if _is_value(each) and set_name_with_dots(container, *_parsed(each))]
        if values:  # Hydra has read their names as paths
            container, choices = _container(conf, [each for each in arguments if each not in values])
            for each in values:
                set_name_with_dots(container, *_parsed(each))
    except SweepsError:
        raise
    except Exception as error:  # noqa: BLE001 - Hydra and OmegaConf raise many types for unexpected input
        raise explain(conf, error, search_path) from None
    return {str(key): value for key, value in container.items()}, {
        str(group): str(option) for group, option in choices.items()
    }


def _container(conf: str, arguments: list[str]) -> tuple[dict[Any, Any], Mapping[str, Any]]:
    composed, choices = _composed(conf, arguments)
    OmegaConf.set_struct(composed, value=False)
    container = OmegaConf.to_container(composed, resolve=False)
    assert isinstance(container, dict)
    return container, choices


def _is_value(argument: str) -> bool:
    return argument.startswith("++") and argument.partition("=")[0].count(".") > 1


def _parsed(argument: str) -> tuple[str, Any]:
    ((path, value),) = parse_values([argument]).items()
    return path, value


def _composed(conf: str, arguments: list[str]) -> tuple[DictConfig, Mapping[str, Any]]:
    try:
        return compose_without_hydra(conf, arguments)
    except SweepsError:
        raise
    except Exception:  # noqa: BLE001 - a mistake, for which Hydra has the message; or a config changes Hydra's own
        whole = compose(conf, overrides=arguments, return_hydra_config=True)
    chosen = dict(whole.hydra.runtime.choices)
    usual = {f"hydra/{group}": option for each in HydraConf().defaults for group, option in _items(each)}
    for group, option in usual.items():
        if chosen.get(group) != option:
            raise refusal(group, f"conf={conf}: {group} in its defaults")
    with open_dict(whole):
        del whole["hydra"]
    return whole, {group: option for group, option in chosen.items() if not is_of_hydra(group)}


def _items(default: Any) -> Iterable[tuple[str, Any]]:
    return default.items() if isinstance(default, Mapping) else ()
