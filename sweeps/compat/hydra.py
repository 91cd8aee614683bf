"""Private names of Hydra: its reader of YAML files, the registry of such readers, and the steps of a composition."""

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
    """Base class for readers of YAML files in Hydra's search path; each subclass has its own ``scheme``."""

    def file(self, config_path: str) -> Path:
        """Return the path of the YAML file of a config, by its name."""
        return Path(self.path, self._normalize_file_name(config_path))


def open_config_loader(source: type[FileSource], folders: Sequence[Path]) -> ConfigLoader:
    """Return a loader that composes configs; a process can have only one at a time. Registers the source each time,
    since other users of Hydra may have cleared its registry.

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
    """Cache of a composition's files, which are read once. Hydra's own cache also copies all sources and the configs of
    its store."""

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
    """Return the parser of overrides, which is built only once."""
    return OverridesParser.create()


def compose_without_hydra(conf: str, overrides: Sequence[str]) -> tuple[DictConfig, Mapping[str, Any]]:
    """Compose a config as ``hydra.compose`` does, but in half the time, since Hydra's own config is left out.

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
