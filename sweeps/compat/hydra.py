"""Private names of Hydra: its own source of YAML files, the registry of sources, and the steps of a composition."""

from __future__ import annotations

import copy
import functools
import os
import pickle
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.defaults_list import Overrides, create_defaults_list
from hydra._internal.hydra import Hydra
from hydra._internal.sources_registry import SourcesRegistry
from hydra._internal.utils import create_config_search_path
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf


class FileSource(FileConfigSource):
    """Hydra's source of YAML files, to be extended. A subclass has its own ``scheme``."""

    asked: ClassVar[dict[Path, None]] = {}
    """Files that compositions have looked for since ``open_config_loader``; some do not exist. Shared by all sources,
    of which ``hydra.compose`` and ``hydra.searchpath`` make further ones."""

    def file(self, config_path: str) -> Path:
        """Path of the YAML file behind the name of a config."""
        file = Path(os.path.normpath(Path(self.path, self._normalize_file_name(config_path))))
        self.asked[file] = None
        return file


def open_config_loader(source: type[FileSource], folders: Sequence[Path]) -> ConfigLoader:
    """Start a composition in this process, one at a time; the first folder that has a file wins. Registers the source,
    the class that reads the files, each time, as another user of Hydra may have cleared its registry."""
    FileSource.asked.clear()
    SourcesRegistry.instance().register(source)
    search_path = create_config_search_path(f"{source.scheme()}://{folders[-1]}")
    for index, folder in enumerate(folders[:-1]):
        search_path.prepend(f"user{index}", f"{source.scheme()}://{folder}", anchor="main")
    return Hydra.create_main_hydra2("sweeps", search_path).config_loader


_Contents = list[tuple[str, list[bytes | None]]]
"""Name of each config that a composition asks for, and the content of its file in each folder."""


class _Files(CachingConfigRepository):
    """Cache of a composition's files, which are read once. Hydra's own cache also copies all sources and the configs of
    its store."""

    def __init__(self, delegate: ConfigRepository) -> None:
        self.delegate = copy.copy(delegate)  # ``hydra.searchpath`` replaces its sources
        self.cache = {}
        self.asked: dict[str, None] = {}
        self.has_fixed_defaults = True
        """Whether no choice in a defaults list so far is an interpolation, such as of an environment variable."""

    def load_config(self, config_path: str) -> ConfigResult | None:
        self.asked[config_path] = None
        loaded = super().load_config(config_path)
        if loaded is not None and any("${" in str(vars(each)) for each in loaded.defaults_list or ()):
            self.has_fixed_defaults = False
        return loaded

    def config_exists(self, config_path: str) -> bool:
        self.asked[config_path] = None
        return super().config_exists(config_path)

    def contents(self, names: Iterable[str]) -> _Contents | None:
        """Return the contents of these configs' files; None if one of them does not come from files alone."""
        if any(self.get_schema_source().is_config(name) for name in names):
            return None
        folders = [source for source in self.get_sources() if isinstance(source, FileSource)]
        return [(name, [_content(folder.file(name)) for folder in folders]) for name in names]


def _content(file: Path) -> bytes | None:
    """Return the content of a file; None if there is none."""
    try:
        return file.read_bytes()
    except OSError:
        return None


@dataclass(frozen=True)
class _Composed:
    """Cached result of a composition."""

    contents: _Contents
    """Files that it depends on."""
    pickled: bytes
    """The config and the options, pickled, since callers may change their copies."""


_composed: dict[tuple[Any, ...], _Composed] = {}
_MAX_COMPOSED = 64


@functools.cache
def override_parser() -> OverridesParser:
    """Return the parser of overrides, which is built only once."""
    return OverridesParser.create()


@contextmanager
def no_warnings_about_defaults() -> Iterator[None]:
    """Silence Hydra's warnings about a behaviour of its defaults lists that changed in version 1.1."""
    with warnings.catch_warnings():
        for message in (".*Defaults list is missing `_self_`", ".*Invalid overriding of hydra/"):
            warnings.filterwarnings("ignore", message, UserWarning)
        yield


def compose_options(conf: str, overrides: Sequence[str]) -> tuple[DictConfig, Mapping[str, Any], list[Override]]:
    """Compose a config with options of its groups as ``hydra.compose`` does, but without Hydra's own config, which
    would take half of the time. Return also the option that was chosen for each group, and the overrides of values, for
    ``set_values``. The result is cached as long as its files do not change."""
    loader: Any = GlobalHydra.instance().config_loader()
    parsed, repository = override_parser().parse_overrides(list(overrides)), _Files(loader.repository)
    values = Overrides(repository, parsed).config_overrides
    sources = repository.get_sources()
    options = [each.input_line for each in parsed if each not in values]
    key = (conf, *options, *((each.scheme(), each.path) for each in sources))
    known = _composed.get(key)
    if known is not None and repository.contents([name for name, _ in known.contents]) == known.contents:
        return *pickle.loads(known.pickled), values  # noqa: S301 - of this process
    loader._process_config_searchpath(conf, parsed, repository)
    with no_warnings_about_defaults():
        found = create_defaults_list(repository, conf, parsed, prepend_hydra=False, skip_missing=False)
    config: DictConfig = loader._compose_config_from_defaults_list(defaults=found.defaults, repo=repository)
    OmegaConf.set_struct(config, value=True)
    choices = found.overrides.known_choices
    contents = repository.contents(repository.asked) if repository.has_fixed_defaults else None
    if contents is not None and repository.get_sources() is sources:
        if len(_composed) >= _MAX_COMPOSED:
            _composed.pop(next(iter(_composed)))
        _composed[key] = _Composed(contents, pickle.dumps((config, choices)))
    return config, choices, values


def set_values(config: DictConfig, overrides: Sequence[Override]) -> None:
    """Set a composed config's values as ``hydra.compose`` does."""
    ConfigLoaderImpl._apply_overrides_to_config(list(overrides), config)
