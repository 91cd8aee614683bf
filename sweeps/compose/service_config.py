"""The service's config: one file of the group ``service``, and the overrides that were typed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sweeps.compose.composition import resolve
from sweeps.compose.config_source import explain
from sweeps.compose.overrides import parse_values
from sweeps.compose.schema_errors import read_as
from sweeps.compose.search_path import ConfSearchPath
from sweeps.config.service import Service
from sweeps.errors import ConfigError, UnknownName
from sweeps.texts.suggestions import did_you_mean
from sweeps.texts.uri_passwords import holds_password

GROUP = "service"
VARIABLES = {"database": "SWEEPS_DATABASE", "tracking_uri": "MLFLOW_TRACKING_URI"}
"""Environment variables for values that may contain a password."""

logger = logging.getLogger(__name__)


def compose_service(tokens: Sequence[str], config_dirs: Sequence[Path]) -> Service:
    """Compose the service's config from ``serve [service=NAME] [key=value ...]``; the default is ``service=local``.
    Users' folders of configs take precedence.

    Raises:
        UnknownName: There is no such service.
        ConfigError: The config is not valid; every mistake is named.
    """
    _warn_of_passwords(tokens)
    values = parse_values(tokens)
    name = str(values.pop(GROUP, "local"))
    search_path = ConfSearchPath(config_dirs)
    file = search_path.file(f"{GROUP}/{name}")
    if file is None:
        raise UnknownName(
            f"{GROUP}={name}: there is no such option{did_you_mean(name, search_path.options(GROUP))}; to add "
            f"it, write {GROUP}/{name}.yaml in a folder given with --config-dir"
        )
    try:
        config = OmegaConf.create(yaml.safe_load(file.read_text(encoding="utf-8")) or {})
        for path, value in values.items():
            OmegaConf.update(config, path, value, force_add=True)
    except (UnicodeDecodeError, yaml.YAMLError, OmegaConfBaseException, OSError) as error:
        raise ConfigError(f"{file}: {explain(error)}") from None
    if not isinstance(config, DictConfig):
        raise ConfigError(f"{file}: must have `key: value` lines, not a list")
    try:
        container: dict[str, Any] = resolve(config)
        return read_as(Service, container)
    except ConfigError as error:
        typed = tuple(values)
        raise ConfigError("\n".join(_with_file(line, file, typed) for line in str(error).splitlines())) from None


def with_output_dir(config: Service, overrides: Sequence[str]) -> list[str]:
    """Return overrides of a sweep that include the service's output folder, unless it is the default."""
    output_dir = config.folder
    is_set = any(each.lstrip("+").startswith("output_dir=") for each in overrides)
    if is_set or output_dir == Path("outputs").absolute():
        return [*overrides]
    quoted = str(output_dir).replace("\\", "\\\\").replace("'", "\\'")
    return [*overrides, f"output_dir='{quoted}'"]


def _with_file(mistake: str, file: Path, typed: Sequence[str]) -> str:
    """Add the service's file to a mistake, unless the wrong key was typed on the command line."""
    key = mistake.partition("=")[0].partition(":")[0]
    if any(key == each or key.startswith(f"{each}.") for each in typed):
        return mistake
    if key == "defaults":
        mistake = (
            "defaults: a service's file cannot extend another; write all its keys in this file (those that it leaves "
            "out have defaults)"
        )
    return f"{file}: {mistake}"


def _warn_of_passwords(tokens: Sequence[str]) -> None:
    for token in tokens:
        key, _, value = token.partition("=")
        if key in VARIABLES and holds_password(value):
            logger.warning(
                "%s=: every user of this machine can read its password in the list of processes; give the URL in the "
                "environment variable %s, or in a service/NAME.yaml that only you can read",
                key,
                VARIABLES[key],
            )
