"""Composes ``conf/`` (and users' folders before it) with Hydra into a ``Composition``: the sweep's typed config,
its space, and the means to build the config of any trial without Hydra."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import yaml
from hydra import compose
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from sweeps.config import SWEEP_CONFIG, SweepConfig
from sweeps.config.space import CategoricalDistribution, ConstantDistribution, OrdinalDistribution
from sweeps.derived import register_calc, without_prefix
from sweeps.errors import ConfigError, UnknownName, nearest
from sweeps.paths import MISSING, find
from sweeps.ranges import distribution_of_range
from sweeps.schema_errors import read_config

MAX_GROUP_COMBINATIONS = 64
DISTRIBUTION_KEYS = {"type", "low", "high", "log", "step", "choices", "value", "when", "prior"}

Variant = tuple[tuple[str, str], ...]
"""Options of the searched groups, in order of the groups."""


def conf_folder() -> Path:
    """Our own ``conf/``: inside an installed package, beside it in a checkout."""
    package = Path(__file__).parent
    installed = package / "conf"
    return installed if installed.is_dir() else package.parent / "conf"


class ConfSearchPath:
    """Folders of configs, the first having precedence, and what can be chosen in them."""

    def __init__(self, folders: Sequence[Path] = ()):
        """
        Args:
            folders: Users' folders; our own comes after them.

        Raises:
            UnknownName: A folder does not exist.
        """
        for folder in folders:
            if not folder.is_dir():
                raise UnknownName(f"--config-dir={folder}: there is no such folder; give one that holds YAML files")
        self.folders = [*(folder.resolve() for folder in folders), conf_folder()]

    def __enter__(self) -> ConfigLoader:
        search_path = create_config_search_path(str(self.folders[-1]))
        for index, folder in enumerate(self.folders[:-1]):
            search_path.prepend(f"user{index}", f"file://{folder}", anchor="main")
        GlobalHydra.instance().clear()
        return Hydra.create_main_hydra2("sweeps", search_path).config_loader

    def __exit__(self, *_: object) -> None:
        GlobalHydra.instance().clear()

    def confs(self) -> list[str]:
        """Names that ``conf=`` takes."""
        with self as loader:
            return _confs(loader)

    def groups(self) -> list[str]:
        """Names of the groups, nested ones with a slash."""
        with self as loader:
            return _groups(loader)

    def options(self, group: str) -> list[str]:
        with self as loader:
            return sorted(loader.get_group_options(group, ObjectType.CONFIG))

    def header(self, name: str) -> str:
        """First comment line of a YAML: what it is."""
        for folder in self.folders:
            path = folder / f"{name}.yaml"
            if path.is_file():
                first = path.read_text(encoding="utf-8").split("\n", 1)[0]
                return first.removeprefix("#").strip() if first.startswith("#") else ""
        return ""


def _confs(loader: ConfigLoader) -> list[str]:
    return sorted(name for name in loader.get_group_options("", ObjectType.CONFIG) if not name.startswith("_"))


def _groups(loader: ConfigLoader, parent: str = "") -> list[str]:
    found: list[str] = []
    for name in loader.list_groups(parent):
        group = f"{parent}/{name}" if parent else name
        if group == "hydra":
            continue
        if loader.get_group_options(group, ObjectType.CONFIG):
            found.append(group)
        found.extend(_groups(loader, group))
    return sorted(found)


@dataclass(frozen=True)
class Composition:
    """A sweep's config, and how to make a trial's config from sampled values. Free of Hydra, and it pickles."""

    conf: str
    config: SweepConfig
    options: dict[str, str]
    """Option that the config chose for each group."""
    searched_groups: list[str]
    variants: dict[Variant, dict[str, Any]]
    """Unresolved config of every combination of searched groups' options."""
    fixed: list[str] = field(default_factory=list)
    """Paths that the command line took out of the space by giving them a value."""

    def variant(self, parameters: Mapping[str, Any]) -> Variant:
        """Which options of the searched groups a trial has."""
        return tuple((group, str(parameters.get(group, self.options[group]))) for group in self.searched_groups)

    def derives(self, parameters: Mapping[str, Any], path: str) -> bool:
        """Whether a value of a trial's config follows others in the YAML, which may be sampled."""
        value: Any = self.variants[self.variant(parameters)]
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else value
        return _interpolates(value)

    def container(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The config of a trial, resolved but not checked: the sweep's with the sampled values set. One that is
        derived from another in the YAML is set like any other, and no longer derived."""
        variant = OmegaConf.create(self.variants[self.variant(parameters)])
        for path, value in parameters.items():
            if path not in self.searched_groups:
                _own_sections(variant, path)
                OmegaConf.update(variant, path, value, merge=False, force_add=True)
        return _resolve(variant)

    def trial(self, parameters: Mapping[str, Any]) -> SweepConfig:
        """The checked config of a trial.

        Raises:
            ConfigError: The values do not make a valid config.
        """
        return read_config(self.container(parameters))

    def changed(self, values: Mapping[str, Any]) -> Composition:
        """The same sweep with other values at dotted paths that no trial searches.

        Raises:
            ConfigError: They do not make a valid config.
        """
        if not values:
            return self
        config = OmegaConf.create(SWEEP_CONFIG.dump_python(self.config, mode="json", by_alias=True))
        variants = {key: OmegaConf.create(raw) for key, raw in self.variants.items()}
        for each in [config, *variants.values()]:
            for path, value in values.items():
                OmegaConf.update(each, path, value, force_add=True)
        raw = {key: cast("dict[str, Any]", OmegaConf.to_container(each)) for key, each in variants.items()}
        return replace(self, config=read_config(_resolve(config)), variants=raw)

    def as_json(self) -> dict[str, Any]:
        """Everything, in plain values; ``from_json`` reads it."""
        return {
            "conf": self.conf,
            "config": SWEEP_CONFIG.dump_python(self.config, mode="json", by_alias=True),
            "options": self.options,
            "searched_groups": self.searched_groups,
            "variants": [{"options": dict(key), "config": raw} for key, raw in self.variants.items()],
            "fixed": self.fixed,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Composition:
        """The composition behind ``as_json``.

        Raises:
            ConfigError: Another version of Sweeps wrote it, whose config this one does not take.
        """
        return cls(
            conf=document["conf"],
            config=read_config(document["config"]),
            options=document["options"],
            searched_groups=document["searched_groups"],
            variants={tuple(sorted(each["options"].items())): each["config"] for each in document["variants"]},
            fixed=document["fixed"],
        )

    def as_yaml(self, parameters: Mapping[str, Any] | None = None) -> str:
        """The whole config, defaults included, of the sweep or of one trial."""
        config = self.trial(parameters) if parameters else self.config
        text: str = yaml.safe_dump(
            SWEEP_CONFIG.dump_python(config, mode="json", by_alias=True), sort_keys=False, allow_unicode=True
        )
        return text


def compose_sweep(conf: str, tokens: Sequence[str], search_path: ConfSearchPath) -> Composition:
    """Compose ``conf/CONF.yaml`` with Hydra overrides.

    A range in an override (``train.lr=interval(1e-5, 1e-2)``) joins the space; a plain value for a searched path
    takes it out of the space; ``space.PATH.FIELD=value`` changes a distribution, ``~space.PATH`` drops it.

    Raises:
        UnknownName: ``conf``, a group's option or a key does not exist.
        ConfigError: The result is not a valid sweep; every mistake is named.
    """
    overrides = _parse(tokens)
    with search_path as loader:
        groups = set(_groups(loader))
        confs = _confs(loader)
        if conf not in confs:
            raise UnknownName(f"conf={conf}: there is no such conf{nearest(conf, confs)}")
        of_space = [each for each in overrides if each.key_or_group.startswith("space.")]
        ranges = [each for each in overrides if each.is_sweep_override()]
        plain = [each for each in overrides if each not in of_space and each not in ranges]
        for each in plain:
            _check_option(each, groups)
        arguments = [_hydra_token(each, groups) for each in plain]

        base, choices = _compose(conf, arguments)
        space = _flatten_space(base.get("space") or {})
        fixed = [each.key_or_group for each in plain if space.pop(each.key_or_group, None) is not None]
        for each in overrides:  # in the order in which they were typed: a range, and then one of its fields
            path = each.key_or_group
            if each in of_space:
                _change_space(space, each)
            elif each in ranges:
                options = sorted(loader.get_group_options(path)) if path in groups else None
                space[path] = distribution_of_range(each, options, partial(_is_whole, base, path))
        base["space"] = space
        config = read_config(_resolve(base))

        _check_group_conditions(config, loader, groups)
        searched = {path: _options(config, path) for path in space if path in groups}
        combinations = [dict(zip(searched, each, strict=True)) for each in itertools.product(*searched.values())]
        if len(combinations) > MAX_GROUP_COMBINATIONS:
            raise ConfigError(
                f"space: the groups {', '.join(searched)} have {len(combinations)} combinations of options; "
                f"at most {MAX_GROUP_COMBINATIONS} can be searched together"
            )
        own = {group: choices[group] for group in searched}  # may lie outside what is searched
        variants = {}
        for combination in [own, *combinations]:
            raw = base if combination == own else _compose(conf, _with_options(arguments, combination))[0]
            variants[tuple(sorted(combination.items()))] = {**raw, "space": {}}
    return Composition(
        conf=conf,
        config=config,
        options=choices,
        searched_groups=sorted(searched),
        variants=variants,
        fixed=[path for path in fixed if path not in space],
    )


def _parse(tokens: Sequence[str]) -> list[Override]:
    parser = OverridesParser.create()
    parsed = []
    for token in tokens:
        try:
            override = parser.parse_override(token)
        except HydraException as error:
            raise ConfigError(
                f"{token!r} is not an override ({_first_line(error)}); write key=value, and quote what the shell "
                "would take, as in 'train.lr=interval(1e-4, 1e-2)'"
            ) from None
        if not override.key_or_group:
            raise ConfigError(f"{token!r} is not an override: it names no key; write key=value")
        parsed.append(override)
    return parsed


def parse_values(tokens: Sequence[str]) -> dict[str, Any]:
    """Plain values by dotted path, from ``key=value`` in Hydra's grammar.

    Raises:
        ConfigError: A token is something else.
    """
    values = {}
    for override in _parse(tokens):
        if override.is_delete() or override.is_sweep_override():
            raise ConfigError(f"{override.input_line}: must be key=value, with one value")
        values[override.key_or_group] = override.value()
    return values


def _check_group_conditions(config: SweepConfig, loader: ConfigLoader, groups: set[str]) -> None:
    """
    Raises:
        UnknownName: A parameter's condition names an option that its group does not have.
    """
    for path, distribution in config.space.items():
        for group, wanted in distribution.when.items():
            if group not in groups:
                continue
            options = sorted(loader.get_group_options(group))
            for option in (wanted or [""]) if isinstance(wanted, list) else [wanted]:
                if option not in options:
                    raise UnknownName(
                        f"space.{path}.when.{group}={option!r}: the group {group} has no such option"
                        f"{nearest(str(option), options)}"
                    )


def _check_option(override: Override, groups: set[str]) -> None:
    """
    Raises:
        ConfigError: A group is given what can be no option's name, at which Hydra would break.
    """
    value = override.value()
    if override.key_or_group not in groups or override.is_delete() or isinstance(value, str | dict | QuotedString):
        return
    if not isinstance(value, list) or not value or not all(isinstance(each, str | QuotedString) for each in value):
        raise ConfigError(
            f"{override.input_line}: {override.key_or_group} is a group; give the name of one of its options "
            f"(python -m sweeps conf {override.key_or_group} lists them)"
        )


def _hydra_token(override: Override, groups: set[str]) -> str:
    """Values are set whether or not the YAML lists their key: the typed schema, which knows every key,
    is the one that refuses unknown ones."""
    text: str = override.input_line or ""
    is_group = override.key_or_group in groups and not isinstance(override.value(), dict)
    if is_group or override.is_delete():
        return text
    return "++" + text.lstrip("+")


def _with_options(arguments: Sequence[str], options: Mapping[str, str]) -> list[str]:
    kept = [argument for argument in arguments if argument.lstrip("+").split("=", 1)[0] not in options]
    return [*kept, *(f"{group}={option}" for group, option in options.items())]


def _compose(conf: str, arguments: Iterable[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The unresolved config, and the option chosen for each group."""
    try:
        composed = compose(conf, overrides=list(arguments), return_hydra_config=True)
        choices = OmegaConf.to_container(composed.hydra.runtime.choices)
        OmegaConf.set_struct(composed, value=False)
        del composed["hydra"]
        container = OmegaConf.to_container(composed, resolve=False)
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        raise _explain(error) from None
    assert isinstance(container, dict)
    assert isinstance(choices, dict)
    return {str(key): value for key, value in container.items()}, {
        str(group): str(option) for group, option in choices.items()
    }


def _explain(error: Exception) -> ConfigError | UnknownName:
    """Hydra's own message, shortened to what a person can act on."""
    text = str(error)
    if "Could not find" in text and "Available options" in text:
        missing = text.split("Could not find '", 1)[1].split("'", 1)[0]
        group, _, option = missing.rpartition("/")
        listed = text.split("Available options", 1)[1].split("Config search path", 1)[0]
        options = [line.strip() for line in listed.splitlines()[1:] if line.strip()]
        return UnknownName(f"{group}={option}: there is no such option{nearest(option, options, count=5)}")
    return ConfigError(_first_line(error))


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]


def _resolve(container: Mapping[str, Any] | DictConfig) -> dict[str, Any]:
    """Interpolations replaced by what they point to.

    Raises:
        ConfigError: One points nowhere, or a value that the YAML leaves open (``???``) was not given.
    """
    register_calc()
    config = container if isinstance(container, DictConfig) else OmegaConf.create(dict(container))
    try:
        resolved = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise ConfigError(f"{error.full_key}: must be given, as in {error.full_key}=VALUE") from None
    except OmegaConfBaseException as error:
        written = find(OmegaConf.to_container(config), str(error.full_key))
        raise ConfigError(
            f"{error.full_key}{'' if written is MISSING else f'={written}'}: {without_prefix(_first_line(error))}"
        ) from None
    assert isinstance(resolved, dict)
    return {str(key): value for key, value in resolved.items()}


def _is_whole(base: Mapping[str, Any], path: str) -> bool:
    """Whether a config's value is a whole number; one that is null is what the schema would take."""
    config = OmegaConf.create({**base, "space": {}})
    try:
        value = find(SWEEP_CONFIG.dump_python(read_config(_resolve(config)), by_alias=True), path)
    except ConfigError:
        return False  # reading the sweep will tell
    if value is not None:
        return isinstance(value, int)
    OmegaConf.update(config, path, 0.5)
    try:
        read_config(_resolve(config))
    except ConfigError as error:
        return any(line.startswith(f"{path}=") and "valid integer" in line for line in str(error).split("\n"))
    return False


def _interpolates(value: Any) -> bool:
    if isinstance(value, Mapping | list):
        return any(_interpolates(each) for each in (value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, str) and "${" in value


def _own_sections(config: DictConfig, path: str) -> None:
    """A section above a path that is an interpolation becomes a copy of what it points to, so that setting one of its
    values keeps the others."""
    parts = path.split(".")
    for length in range(1, len(parts)):
        section = ".".join(parts[:length])
        owner = OmegaConf.select(config, ".".join(parts[: length - 1])) if length > 1 else config
        if isinstance(owner, DictConfig) and OmegaConf.is_interpolation(owner, parts[length - 1]):
            target = OmegaConf.select(config, section)
            copy = OmegaConf.to_container(target) if isinstance(target, DictConfig) else {}
            OmegaConf.update(config, section, copy, merge=False)


def _flatten_space(space: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{train: {lr: {type: float}}}`` and ``{train.lr: {type: float}}`` are the same space."""
    flat: dict[str, Any] = {}
    for name, value in space.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and not DISTRIBUTION_KEYS & {str(key) for key in value}:
            flat.update(_flatten_space(value, f"{path}."))
        elif value is not None:  # null takes a path out of the space
            flat[path] = dict(value) if isinstance(value, Mapping) else value
    return flat


def _change_space(space: dict[str, Any], override: Override) -> None:
    path = override.key_or_group.removeprefix("space.")
    owner, _, name = path.rpartition(".")
    value = override.value()
    if override.is_delete() or (value is None and path in space):
        if space.pop(path, None) is None:
            raise UnknownName(f"~space.{path}: the space has no such path{nearest(path, space)}")
    elif owner in space:
        space[owner] = {**space[owner], name: value}
    elif isinstance(value, Mapping):
        before = space.get(path, {})
        same_kind = value.get("type", before.get("type")) == before.get("type")
        space[path] = {**(before if same_kind else {}), **value}
    elif name in DISTRIBUTION_KEYS:
        raise UnknownName(f"{override.key_or_group}: the space has no path {owner!r}{nearest(owner, space)}")
    else:
        raise ConfigError(
            f"{override.key_or_group}={value!r}: must be a distribution, "
            f"such as 'space.{path}={{type: float, low: 0, high: 1}}'"
        )


def _options(config: SweepConfig, group: str) -> list[str]:
    distribution = config.space[group]
    match distribution:
        case CategoricalDistribution(choices=choices) | OrdinalDistribution(choices=choices):
            key = "choices."
        case ConstantDistribution(value=value):
            choices, key = [value], "value"
        case _:
            raise ConfigError(
                f"space.{group}.type={distribution.type}: {group} is a config group; search it with a categorical or "
                "ordinal of its options"
            )
    for index, choice in enumerate(choices):
        if not isinstance(choice, str):
            where = f"{key}{index}" if key == "choices." else key
            raise ConfigError(f"space.{group}.{where}={choice!r}: must be the name of an option of {group}")
    return list(choices)
