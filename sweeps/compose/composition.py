"""A composed sweep: its typed config, and the config of any of its trials. Does not import Hydra."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from sweeps.compose.config_modules import CONFIG_MODULES, import_config_modules
from sweeps.compose.derived import register_calc, without_prefix
from sweeps.compose.dotted import MISSING, find, keys_of, leaves, nested, replace_at
from sweeps.compose.schema_errors import knows, read_config
from sweeps.config import SweepConfig
from sweeps.config.schedulers import Scheduler
from sweeps.errors import ConfigError

_FROM_ENVIRONMENT = re.compile(r"\$\{oc\.env:([^${},]*)(?:,[^${}]*)?\}")
_INTERPOLATION = re.compile(r"(?<!\\)(\\*)\$\{")

Variant = tuple[tuple[str, str], ...]
"""Chosen options of the searched groups, sorted by group."""


@dataclass(frozen=True)
class Composition:
    """A sweep's config, and everything needed to make a trial's config from sampled values. Can be pickled."""

    conf: str
    config: SweepConfig
    options: dict[str, str]
    """Chosen option of each group."""
    searched_groups: list[str]
    variants: dict[Variant, dict[str, Any]]
    """Unresolved config for each combination of the searched groups' options."""
    fixed: list[str] = field(default_factory=list)
    """Paths that an override removed from the space by giving them a single value."""
    dropped: list[tuple[str, str, Any]] = field(default_factory=list)
    """Fields of distributions that a range on the command line has removed: path, ``when`` or ``prior``, and value. Not
    recorded."""
    stages: list[dict[str, Any]] = field(default_factory=list)
    """Unresolved values by dotted path that each stage of ``search.stages`` changes."""
    files: list[Path] = field(default_factory=list)
    """The user's YAML files that a composition on another machine needs."""

    def variant(self, parameters: Mapping[str, Any]) -> Variant:
        """Return a trial's options of the searched groups."""
        return tuple((group, str(parameters.get(group, self.options[group]))) for group in self.searched_groups)

    def derives(self, parameters: Mapping[str, Any], path: str) -> bool:
        """Whether the YAML computes the value at a path from other values, which may be sampled."""
        value: Any = self.variants[self.variant(parameters)]
        for key in keys_of(value, path) or path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else value
        return _interpolates(value)

    def refers_to(self, path: str) -> bool:
        """Whether a value of the YAML is computed from the value at a path, or from a section that has it."""
        above = [re.escape(path[:end]) for end, character in enumerate(path) if character == "."]
        names = "|".join([re.escape(path), *(rf"{each}\s*[,}}]" for each in above)])
        pattern = re.compile(rf"\$\{{[^}}]*\b(?:{names})")
        return any(pattern.search(repr(raw)) for raw in self.variants.values())

    def container(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the resolved, unchecked config of a trial: that of the sweep with the sampled values. A sampled value
        replaces an interpolation at its path."""
        raw = self.variants[self.variant(parameters)]
        values = {
            # A searched value is a resolved one; a change of a stage is not.
            path: literal(value) if path in self.config.space else value
            for path, value in sorted(parameters.items(), key=lambda each: each[0].count("."))  # sections first
            if path not in self.searched_groups
        }
        plain = _with_plain_values(raw, values)
        return resolve(_with_values(raw, values)) if plain is None else plain

    def trial(self, parameters: Mapping[str, Any]) -> SweepConfig:
        """Return the checked config of a trial.

        Raises:
            ConfigError: The sampled values do not make a valid config.
        """
        return read_config(self.container(parameters))

    def changed(self, values: Mapping[str, Any], space: Mapping[str, Any] | None = None) -> Composition:
        """Return the same sweep with other values, by dotted path, where it does not search, or with a new space in the
        schema's form.

        Raises:
            ConfigError: The result is not a valid config.
        """
        document = self.config.as_document()
        if not values and space in (None, document["space"]):
            return self
        variants = {key: _changed(OmegaConf.create(raw), document, values) for key, raw in self.variants.items()}
        raw = {key: cast("dict[str, Any]", OmegaConf.to_container(each)) for key, each in variants.items()}
        own = self.variant({})
        # Derive again only values that follow from a changed one: the environment and the clock have changed, too.
        # A value that differs between `before` and `again` depends on the time, and stays as it is.
        before, after, again = (resolve(each[own]) for each in (self.variants, raw, self.variants))
        for path in leaves(document, without=("space",)):
            old, derived = find(before, path), find(after, path)
            if self.derives({}, path) and derived is not MISSING and old == find(again, path) != derived:
                replace_at(document, path, derived)
        config = OmegaConf.create(literal({**document, "space": document["space"] if space is None else dict(space)}))
        config.tracking.uri = self.config.tracking.uri  # the JSON form has no password
        return replace(self, config=read_config(resolve(_changed(config, document, values))), variants=raw)

    def in_stage(self, number: int) -> Composition:
        """Return the sweep with the cheaper trials of a stage, counted from 1, in the same space.

        Raises:
            ConfigError: The stage's changes do not make a valid config.
        """
        search, changes = self.config.search, self.stages[number - 1]
        # A user's points are trained in the first stage, and later only if they are among the best.
        own = replace(
            search,
            num_trials=search.stages[number - 1].num_trials,
            points=search.points if number == 1 else [],
            stages=[],
            confirm=0,
        )
        config = replace(self.trial(changes), search=own, space=self.config.space, tracking=self.config.tracking)
        variants = {key: _unresolved_with(raw, changes) for key, raw in self.variants.items()}
        return replace(self, config=config, variants=variants, stages=[])

    def with_scheduler(self, scheduler: Scheduler) -> Composition:
        """Return the same sweep with another scheduler."""
        config = replace(self.config, search=replace(self.config.search, scheduler=scheduler))
        variants = {
            key: {**raw, "search": {**raw["search"], "scheduler": asdict(scheduler)}}
            for key, raw in self.variants.items()
        }
        return replace(self, config=config, variants=variants)

    def recorded_at(self, uri: str) -> Composition:
        """Return the same sweep with another tracking URI."""
        return replace(self, config=replace(self.config, tracking=replace(self.config.tracking, uri=uri)))

    def as_json(self) -> dict[str, Any]:
        """Return the composition as plain values, for ``from_json``."""
        return {
            "conf": self.conf,
            "config": self.config.as_document(),
            "options": self.options,
            "searched_groups": self.searched_groups,
            "variants": [{"options": dict(key), "config": raw} for key, raw in self.variants.items()],
            "fixed": self.fixed,
            **({"stages": self.stages} if self.stages else {}),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Composition:
        """Return the composition from the values of ``as_json``.

        Raises:
            ConfigError: Another version of Sweeps wrote it, and its config is not valid here.
        """
        return cls(
            conf=document["conf"],
            config=read_config(document["config"]),
            options=document["options"],
            searched_groups=document["searched_groups"],
            variants={tuple(sorted(each["options"].items())): each["config"] for each in document["variants"]},
            fixed=document["fixed"],
            stages=document.get("stages", []),
        )

    def as_yaml(self, parameters: Mapping[str, Any] | None = None) -> str:
        """Return the whole config with defaults, of the sweep or of one trial, as YAML."""
        return config_as_yaml(self.trial(parameters) if parameters else self.config)


def config_as_yaml(config: SweepConfig) -> str:
    """Return a whole config with defaults as YAML."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # in C, where PyYAML was built with it
    raw = config.as_document()
    text: str = yaml.dump(raw, Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text


def resolve(container: Mapping[str, Any] | DictConfig) -> dict[str, Any]:
    """Return a config with its interpolations replaced by their values.

    Raises:
        ConfigError: An interpolation cannot be resolved, or a required value (``???``) is missing.
    """
    if not isinstance(container, DictConfig) and (plain := _with_plain_values(container, {})) is not None:
        return plain
    register_calc()
    import_config_modules()
    config = container if isinstance(container, DictConfig) else OmegaConf.create(dict(container))
    try:
        resolved = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise ConfigError(f"{error.full_key}: must be given, as in {error.full_key}=VALUE") from None
    except OmegaConfBaseException as error:
        written = find(OmegaConf.to_container(config), str(error.full_key))
        reason = without_prefix(first_line(error))
        if (unset := re.fullmatch(r"Interpolation key '(.+)' not found", reason)) is not None:
            fix = _instead_of(unset[1], config, str(error.full_key))
            reason = f"the config does not set {unset[1]}, and its default is not read; {fix}"
        if "HydraConfig was not set" in reason:
            reason = "only Hydra's own program has ${hydra:...}; write the value itself, or ${name} and ${output_dir}"
        if (unset := re.search(r"Environment variable '(.+)' not found", reason)) is not None:
            name = unset[1]
            reason = f"the environment has no {name}; set it, or write a default, as in ${{oc.env:{name},VALUE}}"
        if (unknown := re.fullmatch(r"Unsupported interpolation type (.+)", reason)) is not None:
            reason = (
                f"there is no resolver {unknown[1]}; ${{calc:'...'}} computes, and {CONFIG_MODULES}=MODULE imports a "
                "module that registers others"
            )
        raise ConfigError(f"{error.full_key}{'' if written is MISSING else f'={written}'}: {reason}") from None
    assert isinstance(resolved, dict)
    return {str(key): value for key, value in resolved.items()}


def _instead_of(name: str, config: DictConfig, at: str) -> str:
    """Return the fix for an interpolation, at this path, of a name that the config does not set."""
    if name in os.environ:
        return f"write ${{oc.env:{name}}} for the variable of the environment"
    is_sweep = "search" in config
    if "." in name and is_sweep and knows(name):
        return f"add it, as in `{nested(name)}`"
    last, own = name.rpartition(".")[2], at.partition("[")[0]
    paths = [path for path in leaves(OmegaConf.to_container(config)) if path.rpartition(".")[2] == last and path != own]
    if paths:
        return f"write ${{{min(paths, key=lambda path: not path.startswith('vars.'))}}}"
    return f"write ${{vars.{last}}}, and below vars the line {last}: VALUE" if is_sweep else "write the value itself"


def literal(value: Any) -> Any:
    """Return a resolved value with ``${`` escaped, which OmegaConf would read as an interpolation."""
    if isinstance(value, dict):
        return {key: literal(each) for key, each in value.items()}
    if isinstance(value, list):
        return [literal(each) for each in value]
    return _INTERPOLATION.sub(r"\1\1\${", value) if isinstance(value, str) else value


def _interpolates(value: Any) -> bool:
    if isinstance(value, Mapping | list):
        return any(_interpolates(each) for each in (value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, str) and "${" in value


class _NeedsOmegaConf(Exception):
    """A value has an interpolation or is missing."""


def _with_plain_values(raw: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Set values in a config, twenty times as fast as OmegaConf, since every trial waits for it. Return None if
    OmegaConf is needed: for interpolations, missing values, and paths through anything but mappings."""
    try:
        config: dict[str, Any] = _copied(raw)
        for path, value in values.items():
            *sections, name = keys_of(config, path) or path.split(".")
            section: Any = config
            for part in sections:
                section = section.get(part)
                if not isinstance(section, dict):
                    return None
            section[name] = _copied(value)
    except (_NeedsOmegaConf, OmegaConfBaseException):
        return None
    return config


def _copied(value: Any) -> Any:
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_copied(each) for each in value]
    if isinstance(value, str) and (found := _FROM_ENVIRONMENT.fullmatch(value)):
        return deepcopy(_from_environment(value, os.environ.get(found[1].strip())))  # a default may be a list
    if value is None or type(value) in {bool, int, float} or (isinstance(value, str) and not _interpolates(value)):
        if value == "???":
            raise _NeedsOmegaConf
        return value
    raise _NeedsOmegaConf


@lru_cache(maxsize=64)
def _from_environment(text: str, value: str | None) -> Any:  # noqa: ARG001 - the variable's value is a key of the cache
    """Resolve an environment variable without OmegaConf's parser, which would take milliseconds."""
    return OmegaConf.to_container(OmegaConf.create([text]), resolve=True)[0]  # type: ignore[index]


def _with_values(raw: Mapping[str, Any], values: Mapping[str, Any]) -> DictConfig:
    config = OmegaConf.create(dict(raw))
    for path, value in values.items():
        if _sets_a_name_with_dots(config, raw, path, value):
            continue
        _copy_referenced_sections(config, path)
        OmegaConf.update(config, path, value, merge=False, force_add=True)
    return config


def _sets_a_name_with_dots(config: DictConfig, raw: Mapping[str, Any], path: str, value: Any) -> bool:
    """Set a value whose own name has dots; return False if there is no such name on the path."""
    keys = keys_of(raw, path)
    if keys is None or keys == path.split("."):
        return False
    section = config
    for key in keys[:-1]:
        section = section[key]
    section[keys[-1]] = value
    return True


def _changed(config: DictConfig, document: Mapping[str, Any], values: Mapping[str, Any]) -> DictConfig:
    """Set values in a config; ``document`` tells which names contain dots."""
    for path, value in values.items():
        if not _sets_a_name_with_dots(config, document, path, value):
            OmegaConf.update(config, path, value, force_add=True)
    return config


def _unresolved_with(raw: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any]", OmegaConf.to_container(_with_values(raw, values)))


def _copy_referenced_sections(config: DictConfig, path: str) -> None:
    """Replace each section above a path that only refers to another section by a copy of that section, so that setting
    one of its values keeps the others."""
    parts = path.split(".")
    for length in range(1, len(parts)):
        section = ".".join(parts[:length])
        owner = OmegaConf.select(config, ".".join(parts[: length - 1])) if length > 1 else config
        if isinstance(owner, DictConfig) and OmegaConf.is_interpolation(owner, parts[length - 1]):
            target = OmegaConf.select(config, section)
            copy = OmegaConf.to_container(target) if isinstance(target, DictConfig) else {}
            OmegaConf.update(config, section, copy, merge=False)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().split("\n", 1)[0]
