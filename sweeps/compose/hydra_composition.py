"""Composition of a sweep from ``conf/``, users' folders and overrides, with Hydra."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.conf import HydraConf
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict

from sweeps.compat.hydra import FileSource, compose_options, no_warnings_about_defaults, set_values
from sweeps.compose.composition import Composition, Variant, resolve
from sweeps.compose.config_modules import import_config_modules
from sweeps.compose.dotted import find, replace_at, set_name_with_dots
from sweeps.compose.hydra_messages import explain
from sweeps.compose.hydra_settings import check_overrides, check_section, is_of_hydra, refusal_in
from sweeps.compose.overrides import check_option, hydra_token, parse_overrides, parse_values, with_options
from sweeps.compose.ranges import distribution_of_range
from sweeps.compose.schema_errors import read_config
from sweeps.compose.search_path import ConfSearchPath
from sweeps.compose.space_config import (
    change_space,
    check_group_conditions,
    first_value,
    is_integer,
    joined_space,
    options_of,
    space_in,
)
from sweeps.compose.stage_configs import stage_changes
from sweeps.compose.start_values import StartValues
from sweeps.errors import ConfigError, SweepsError, UnknownName, UserError
from sweeps.texts.suggestions import did_you_mean

MAX_GROUP_COMBINATIONS = 64


def compose_tokens(tokens: Sequence[str], config_dirs: Sequence[Path], *, names_files: bool = True) -> Composition:
    """Compose a sweep from the tokens of a command line.

    Args:
        tokens: ``conf=NAME`` or ``conf=FILE.yaml``, and overrides.
        config_dirs: Users' folders of configs, which take precedence.
        names_files: Whether the message for an unknown name may name a file that has it.

    Raises:
        UnknownName: The tokens name no sweep, several ones, or one that does not exist.
        ConfigError: See ``compose_sweep``.
    """
    confs = [token.removeprefix("conf=") for token in tokens if token.startswith("conf=")]
    if len(confs) == 1 and (file := Path(confs[0]).expanduser()).suffix in (".yaml", ".yml"):
        if not file.is_file():
            raise UnknownName(
                f"conf={file}: there is no such file; give the name of a config, or a YAML file that exists"
            )
        _check_ending(file)
        confs, config_dirs = [file.stem], [file.parent, *config_dirs]
    search_path = ConfSearchPath(config_dirs)
    if len(confs) != 1:
        known = ", ".join(search_path.confs())
        raise UnknownName(f"say which sweep to run, once: conf=NAME, one of {known}")
    conf = confs[0]
    if names_files and conf not in search_path.confs():
        for folder in search_path.folders:
            _check_ending(folder / f"{conf}.yml")
        if (found := search_path.unlisted(conf)) is not None:
            raise UnknownName(
                f"conf={conf}: there is no such conf; for {found} write conf={found.stem} --config-dir {found.parent}"
            )
    return compose_sweep(conf, [token for token in tokens if not token.startswith("conf=")], search_path)


def _check_ending(file: Path) -> None:
    if file.suffix == ".yml" and os.path.isfile(file):  # noqa: PTH113 - of any length
        raise UnknownName(f"conf={file}: only files that end in .yaml are read; rename it to {file.stem}.yaml")


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
        confs = search_path.confs()
        if conf not in confs:
            raise UnknownName(f"conf={conf}: there is no such conf{did_you_mean(conf, confs)}")
        composed = _Conf(conf, overrides, search_path)
        space = composed.space(overrides)
        composed.choose_searched(_searched_options(space, overrides, search_path, in_all_trials=True))
        own = {path: dict(each) for path, each in space.items() if isinstance(each, Mapping)}
        fixed = composed.change_space(space, overrides)
        base = composed.container
        _give_searched(base, space)
        base["space"] = space
        config = read_config(resolve(base))
        check_group_conditions(config, search_path)
        searched = {path: options_of(config, path) for path in space if search_path.is_group(path)}
        for group, names in searched.items():
            if config.space[group].when:  # where it does not hold, trials have the conf's own option
                searched[group] = list(dict.fromkeys([composed.choices[group], *names]))
        variants = composed.variants(searched, space)
        stages = [
            stage_changes(f"search.stages.{index}", stage, base, search_path, composed.with_options)
            for index, stage in enumerate(config.search.stages)
        ]
        files = _files_of_user(FileSource.asked, search_path)
    return Composition(
        conf=conf,
        config=config,
        options=composed.choices,
        searched_groups=sorted(searched),
        variants=variants,
        fixed=[path for path in fixed if path not in space],
        dropped=_dropped(own, space, overrides),
        stages=stages,
        files=files,
    )


def _dropped(
    own: Mapping[str, Any], space: Mapping[str, Any], overrides: Sequence[Override]
) -> list[tuple[str, str, Any]]:
    """Return the conditions and priors that ranges have removed from the conf's own space."""
    ranges = dict.fromkeys(each.key_or_group for each in overrides if each.is_sweep_override())
    return [
        (path, key, own[path][key])
        for path in ranges
        for key in ("when", "prior")
        if isinstance(own.get(path, {}).get(key), Mapping) and not space.get(path, {key: ...}).get(key)
    ]


def _files_of_user(asked: Iterable[Path], search_path: ConfSearchPath) -> list[Path]:
    """Return the user's files that this composition may need on another machine: the files that it read, and all
    options of their groups, since conditions and environment variables may choose others there."""
    *folders, own = search_path.folders
    users = [file for file in asked if not file.is_relative_to(own)]
    groups = dict.fromkeys(file.parent for file in users if file.parent not in folders)
    files = [*users, *(file for group in groups for file in sorted(group.glob("*.yaml")))]
    return [file for file in dict.fromkeys(files) if file.is_file()]


class _Conf:
    """A conf and the overrides outside of its space; it can be composed with different options of its groups."""

    def __init__(self, conf: str, overrides: Sequence[Override], search_path: ConfSearchPath) -> None:
        self.plain = [each for each in overrides if not _is_of_space(each)]
        for each in self.plain:
            check_option(each, search_path)
        self._conf, self._search_path = conf, search_path
        self._arguments = [hydra_token(each, search_path) for each in self.plain]
        self._start_values = StartValues()
        self._choose({})
        self._variant = cache(self._composed_variant)

    def _choose(self, options: Mapping[str, str]) -> None:
        """Compose the conf with the given options of groups in place of its own."""
        self._arguments = with_options(self._arguments, options)
        container, self.choices = _compose(self._conf, self._arguments, self._search_path)
        self.container = self._fixed(container)

    def choose_searched(self, searched: Mapping[str, Sequence[str]]) -> None:
        """Choose the first searched option of each group whose own option is not searched, so that the sweep's own
        config is that of a trial."""
        first = {
            group: names[0]
            for group, names in searched.items()
            if names and self.choices.get(group, names[0]) not in names
        }
        if first:
            self._choose(first)

    def with_options(self, options: Mapping[str, str], values: Iterable[str] = ()) -> dict[str, Any]:
        """Compose the conf with the given options of groups and further values."""
        return self._fixed(
            _compose(self._conf, [*with_options(self._arguments, options), *values], self._search_path)[0]
        )

    def _fixed(self, container: dict[str, Any]) -> dict[str, Any]:
        fixed: dict[str, Any] = self._start_values.fixed(container)
        if isinstance(tracking := container.get("tracking"), dict) and "uri" in tracking:
            fixed["tracking"]["uri"] = tracking["uri"]  # stays an interpolation, since it may have a password
        return fixed

    def space(self, overrides: Sequence[Override]) -> dict[str, Any]:
        """Return the space of the conf and of the searched options of its groups."""
        if any(map(_removes_space, overrides)):
            return {}
        space = space_in(self.container)
        searched = _searched_options(space, overrides, self._search_path)
        if not searched or math.prod(map(len, searched.values())) > MAX_GROUP_COMBINATIONS:
            return space
        spaces = {each: space_in(self._variant(each)) for each in _combinations(searched)}
        return joined_space(spaces, searched)

    def change_space(self, space: dict[str, Any], overrides: Sequence[Override]) -> list[str]:
        """Apply ranges, changes of distributions, and plain values for searched paths in the order in which they were
        typed. Return the paths that a plain value has removed; beside a whole distribution, such as
        ``space.train.lr={...}``, a plain value is the config's own."""
        fixed, distributions = [], {each.key_or_group for each in overrides}
        for each in overrides:
            path = each.key_or_group
            if path.startswith("space."):
                change_space(space, each)
            elif each.is_sweep_override():
                options = self._search_path.options(path) if self._search_path.is_group(path) else None
                space[path] = distribution_of_range(each, options, partial(is_integer, self.container, path))
            elif f"space.{path}" not in distributions and space.pop(path, None) is not None:
                fixed.append(path)
        return fixed

    def variants(
        self, searched: Mapping[str, Sequence[str]], space: Mapping[str, Any]
    ) -> dict[Variant, dict[str, Any]]:
        """Return the config with each combination of the searched options, the conf's own first."""
        count = math.prod(map(len, searched.values()))
        if count > MAX_GROUP_COMBINATIONS:
            raise ConfigError(
                f"space: the groups {', '.join(searched)} have {count:,} combinations of options; "
                f"at most {MAX_GROUP_COMBINATIONS} can be searched together"
            )
        own = tuple(sorted((group, self.choices[group]) for group in searched))
        combinations = dict.fromkeys([own, *_combinations(searched)])
        variants = {each: {**self._variant(each), "space": {}} for each in combinations}
        for each in variants.values():
            _give_searched(each, space)
        return variants

    def _composed_variant(self, combination: Variant) -> dict[str, Any]:
        is_own = all(self.choices.get(group) == option for group, option in combination)
        return self.container if is_own else self.with_options(dict(combination))


def _is_of_space(override: Override) -> bool:
    return override.is_sweep_override() or override.key_or_group.startswith("space.") or _removes_space(override)


def _removes_space(override: Override) -> bool:
    """Whether an override is ``~space``. Hydra's ``~`` removes only the group from the defaults, not the conf's own
    space."""
    return override.key_or_group == "space" and override.is_delete()


def _give_searched(base: dict[str, Any], space: Mapping[str, Any]) -> None:
    """Set each required value that is searched to its first choice."""
    for path, distribution in space.items():
        if find(base, path) == "???" and (first := first_value(distribution)) is not None:
            replace_at(base, path, first)


def _combinations(searched: Mapping[str, Sequence[str]]) -> list[Variant]:
    return [tuple(sorted(zip(searched, each, strict=True))) for each in itertools.product(*searched.values())]


def _searched_options(
    space: Mapping[str, Any], overrides: Sequence[Override], search_path: ConfSearchPath, *, in_all_trials: bool = False
) -> dict[str, list[str]]:
    """Return the searched options of groups, or of those without a ``when``; mistakes are reported later, by the checks
    of the whole config."""
    is_group = search_path.is_group
    chosen = {path: each for path, each in space.items() if is_group(path)}
    for each in overrides:
        path = each.key_or_group
        with suppress(UserError):
            if is_group(path) and each.is_sweep_override():
                chosen[path] = distribution_of_range(each, search_path.options(path), lambda: False)
            elif is_group(path):
                chosen.pop(path, None)
            elif path.startswith("space.") and is_group(path.split(".")[1]):
                change_space(chosen, each)
    options = {
        path: _options(each)
        for path, each in chosen.items()
        if is_group(path) and not (in_all_trials and isinstance(each, Mapping) and each.get("when"))
    }
    return {
        path: names
        for path, names in options.items()
        if names is not None and all(each in search_path.options(path) for each in names)
    }


def _options(distribution: Any) -> list[str] | None:
    """Return the options in a group's distribution; None if it is not valid."""
    names = distribution.get("choices", [distribution.get("value")]) if isinstance(distribution, Mapping) else None
    return names if isinstance(names, list) and names else None


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
        config, choices, values = compose_options(conf, arguments)
    except SweepsError:
        raise
    except Exception as error:
        if isinstance(error, HydraException) and "hydra/" not in str(error):
            raise  # a mistake; Hydra also wraps those that OmegaConf finds
        with no_warnings_about_defaults():
            whole = compose(conf, overrides=arguments, return_hydra_config=True)  # they may change Hydra's own config
    else:
        set_values(config, values)
        return config, choices
    chosen = dict(whole.hydra.runtime.choices)
    defaults = (each for each in HydraConf().defaults if isinstance(each, Mapping))
    usual = {f"hydra/{group}": option for each in defaults for group, option in each.items()}
    for group, option in usual.items():
        if chosen.get(group) != option:
            raise refusal_in(conf, group, f"{group} in its defaults")
    with open_dict(whole):
        del whole["hydra"]
    return whole, {group: option for group, option in chosen.items() if not is_of_hydra(group)}
