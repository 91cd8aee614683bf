"""Private names of Hydra: its own source of YAML files, the registry of sources, and the steps of a composition."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra._internal import defaults_list as hydra_defaults
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.hydra import Hydra
from hydra._internal.sources_registry import SourcesRegistry
from hydra._internal.utils import create_config_search_path
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf


class FileSource(FileConfigSource):
    """Hydra's source of YAML files, to be extended. A subclass has its own ``scheme``."""

    def file(self, config_path: str) -> Path:
        """Path of the YAML file behind the name of a config."""
        return Path(self.path, self._normalize_file_name(config_path))


def open_config_loader(source: type[FileSource], folders: Sequence[Path]) -> ConfigLoader:
    """Start a composition in this process, one at a time. Registers the source each time, as another user of Hydra may
    have cleared its registry.

    Args:
        source: Class that reads the files.
        folders: Folders of configs; the first that has a file wins.
    """
    SourcesRegistry.instance().register(source)
    search_path = create_config_search_path(f"{source.scheme()}://{folders[-1]}")
    for index, folder in enumerate(folders[:-1]):
        search_path.prepend(f"user{index}", f"{source.scheme()}://{folder}", anchor="main")
    return Hydra.create_main_hydra2("sweeps", search_path).config_loader


class _Files(CachingConfigRepository):
    """Files of a composition, each read once. Hydra's own reader also copies all sources, with the configs of its
    store."""

    def __init__(self, delegate: ConfigRepository) -> None:
        self.delegate = copy.copy(delegate)  # ``hydra.searchpath`` replaces its sources
        self.cache = {}


_interpolation_map = hydra_defaults._create_interpolation_map


def _needed_interpolation_map(overrides: Any, defaults: list[Any], self_added: bool) -> DictConfig | None:
    """Return the choices to which interpolations in a defaults list refer; None if it has none. Hydra makes them for
    each file, which takes a quarter of a composition."""
    is_needed = any(not each.is_self() and each.is_interpolation() for each in defaults)
    return _interpolation_map(overrides, defaults, self_added) if is_needed else None


hydra_defaults._create_interpolation_map = _needed_interpolation_map  # type: ignore[assignment]


@functools.cache
def override_parser() -> OverridesParser:
    """Parser of overrides that inspects its functions only once."""
    return OverridesParser.create()


def compose_without_hydra(conf: str, overrides: Sequence[str]) -> tuple[DictConfig, Mapping[str, Any]]:
    """Compose a config as ``hydra.compose`` does, without Hydra's own config, which takes half of the time.

    Returns:
        The config, and the option that was chosen for each group.
    """
    loader: Any = GlobalHydra.instance().config_loader()
    parsed, repository = override_parser().parse_overrides(list(overrides)), _Files(loader.repository)
    loader._process_config_searchpath(conf, parsed, repository)
    with warnings.catch_warnings():  # about a behaviour that changed in Hydra 1.1
        warnings.filterwarnings("ignore", ".*Defaults list is missing `_self_`", UserWarning)
        found = hydra_defaults.create_defaults_list(repository, conf, parsed, prepend_hydra=False, skip_missing=False)
    config: DictConfig = loader._compose_config_from_defaults_list(defaults=found.defaults, repo=repository)
    OmegaConf.set_struct(config, value=True)
    loader._apply_overrides_to_config(found.config_overrides, config)
    return config, found.overrides.known_choices
