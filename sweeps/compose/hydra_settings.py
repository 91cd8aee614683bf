"""Settings and options of Hydra's own program, and their equivalents here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweeps.errors import ConfigError

_INSTEAD = {
    "hydra.searchpath": "name the folder with --config-dir=DIR",
    "hydra.sweeper": "write search.num_trials, search/sampler and search/scheduler (python -m sweeps conf search)",
    "hydra.launcher": "search.max_concurrent says how many trials run at once, and the group cluster where",
    "hydra.run": "sweeps are written to output_dir, under --name",
    "hydra.sweep": "sweeps are written to output_dir, under --name",
    "hydra.job": "--name is the name of a sweep, and cluster.env lists the environment variables that workers get",
    "hydra.verbose": "--debug shows tracebacks",
    "hydra.mode": "every sweep is a search; leave it out",
}
OPTIONS = {
    "--multirun": "every run is a search here; leave it out",
    "-m": "every run is a search here; leave it out",
    "--config-name": "write conf=NAME",
    "--config-path": "write --config-dir=DIR",
    "-c": "write --dry-run for --cfg, conf=NAME for -cn, --config-dir=DIR for -cd",
    "--cfg": "--dry-run prints the config",
    "--info": "--dry-run prints the config, and `python -m sweeps conf` lists the groups",
}
"""Advice for each option of Hydra's program."""
CONFIG_OF_PROGRAM = (
    "for a program that reads this config with Hydra, `python -m sweeps init --from PROGRAM.py` writes one of a sweep"
)
"""Advice about a config that is not one of a sweep."""


def is_of_hydra(path: str) -> bool:
    """Whether a key or group is one of Hydra's own.

    >>> is_of_hydra("hydra/sweeper"), is_of_hydra("hydra.run.dir"), is_of_hydra("hydra_zen.x")
    (True, True, False)
    """
    return path.replace("/", ".").partition(".")[0] == "hydra"


def check_overrides(overrides: Mapping[str, str]) -> None:
    """Reject overrides of Hydra's own program.

    Raises:
        ConfigError: An override is a setting of Hydra's own program.
    """
    for path, written in overrides.items():
        if is_of_hydra(path):
            raise _refusal(path, written)


def refusal_in(conf: str, path: str, written: str) -> ConfigError:
    """Return the error for a setting of Hydra's own program in a config; the config may belong to such a program."""
    return ConfigError(f"conf={conf}: {_refusal(path, written)}; {CONFIG_OF_PROGRAM}")


def _refusal(path: str, written: str) -> ConfigError:
    """Return the error for a setting of Hydra's own program, which would have no effect."""
    section = ".".join(path.replace("/", ".").split(".")[:2])
    instead = _INSTEAD.get(section, "remove it")
    return ConfigError(f"{written}: is a setting of Hydra's own program, and has no effect here; {instead}")


def check_section(conf: str, section: Any) -> None:
    """Reject the section ``hydra`` of a config, except ``hydra.searchpath``.

    Raises:
        ConfigError: A config sets one of Hydra's own values; only ``hydra.searchpath`` has an effect.
    """
    for name, value in section.items() if isinstance(section, Mapping) else ():
        if name != "searchpath":
            raise refusal_in(conf, f"hydra.{name}", f"hydra.{name}={value}")
