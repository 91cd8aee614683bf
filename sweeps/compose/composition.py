"""What ``conf/`` and the command line come to: a sweep's typed config, and that of any of its trials. Free of Hydra."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from sweeps.compose.derived import register_calc, without_prefix
from sweeps.compose.dotted import MISSING, find
from sweeps.compose.schema_errors import read_config
from sweeps.config import SWEEP_CONFIG, SweepConfig
from sweeps.errors import ConfigError

_FROM_ENVIRONMENT = re.compile(r"\$\{oc\.env:[^${}]*\}")

Variant = tuple[tuple[str, str], ...]
"""Options of the searched groups, in order of the groups."""


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
        raw = self.variants[self.variant(parameters)]
        values = {path: value for path, value in parameters.items() if path not in self.searched_groups}
        plain = _with_plain_values(raw, values)
        if plain is not None:
            return plain
        variant = OmegaConf.create(raw)
        for path, value in values.items():
            _own_sections(variant, path)
            OmegaConf.update(variant, path, value, merge=False, force_add=True)
        return resolve(variant)

    def trial(self, parameters: Mapping[str, Any]) -> SweepConfig:
        """The checked config of a trial.

        Raises:
            ConfigError: The values do not make a valid config.
        """
        return read_config(self.container(parameters))

    def changed(self, values: Mapping[str, Any], space: Mapping[str, Any] | None = None) -> Composition:
        """The same sweep with other values at dotted paths that no trial searches.

        Args:
            values: By path.
            space: As the schema reads it; default: the same.

        Raises:
            ConfigError: They do not make a valid config.
        """
        document = SWEEP_CONFIG.dump_python(self.config, mode="json", by_alias=True)
        if not values and space in (None, document["space"]):
            return self
        config = OmegaConf.create({**document, "space": document["space"] if space is None else dict(space)})
        config.tracking.uri = self.config.tracking.uri  # in JSON it has no password
        variants = {key: OmegaConf.create(raw) for key, raw in self.variants.items()}
        for each in [config, *variants.values()]:
            for path, value in values.items():
                OmegaConf.update(each, path, value, force_add=True)
        raw = {key: cast("dict[str, Any]", OmegaConf.to_container(each)) for key, each in variants.items()}
        return replace(self, config=read_config(resolve(config)), variants=raw)

    def recorded_at(self, uri: str) -> Composition:
        """The same sweep with its record in another place."""
        return replace(self, config=replace(self.config, tracking=replace(self.config.tracking, uri=uri)))

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
        return config_as_yaml(self.trial(parameters) if parameters else self.config)


def config_as_yaml(config: SweepConfig) -> str:
    """A whole config, defaults included."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # in C, where PyYAML was built with it
    raw = SWEEP_CONFIG.dump_python(config, mode="json", by_alias=True)
    text: str = yaml.dump(raw, Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text


def resolve(container: Mapping[str, Any] | DictConfig) -> dict[str, Any]:
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
            f"{error.full_key}{'' if written is MISSING else f'={written}'}: {without_prefix(first_line(error))}"
        ) from None
    assert isinstance(resolved, dict)
    return {str(key): value for key, value in resolved.items()}


def _interpolates(value: Any) -> bool:
    if isinstance(value, Mapping | list):
        return any(_interpolates(each) for each in (value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, str) and "${" in value


class _TakesOmegaConf(Exception):
    """A value is anything but itself."""


def _with_plain_values(raw: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any] | None:
    """What OmegaConf would make of it, twenty times as fast, which every trial waits for. None where it takes
    OmegaConf: for interpolations, open values, and paths through anything but mappings."""
    try:
        config: dict[str, Any] = _copied(raw)
        for path, value in values.items():
            *sections, name = path.split(".")
            section: Any = config
            for part in sections:
                section = section.get(part)
                if not isinstance(section, dict):
                    return None
            section[name] = _copied(value)
    except (_TakesOmegaConf, OmegaConfBaseException):
        return None
    return config


def _copied(value: Any) -> Any:
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_copied(each) for each in value]
    if isinstance(value, str) and _FROM_ENVIRONMENT.fullmatch(value):
        return OmegaConf.to_container(OmegaConf.create([value]), resolve=True)[0]  # type: ignore[index]
    if value is None or type(value) in {bool, int, float} or (isinstance(value, str) and not _interpolates(value)):
        if value == "???":
            raise _TakesOmegaConf
        return value
    raise _TakesOmegaConf


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


def first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
