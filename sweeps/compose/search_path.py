"""Search path of configs: users' folders, then the ``conf/`` that comes with Sweeps."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType

from sweeps.compat.hydra import open_config_loader
from sweeps.compose.config_source import CheckedFiles
from sweeps.conf_folder import conf_folder
from sweeps.errors import UnknownName

_composing = threading.RLock()
"""Lock around every composition: Hydra's state is global to the process, and the service has several threads."""


class ConfSearchPath:
    """Folders of configs, the first having precedence; as a context manager, a Hydra composition from them."""

    def __init__(self, folders: Sequence[Path] = ()):
        """
        Args:
            folders: Users' folders; the ``conf/`` of Sweeps is added at the end.

        Raises:
            UnknownName: A folder does not exist.
        """
        for folder in folders:
            if not folder.is_dir():
                raise UnknownName(f"--config-dir={folder}: there is no such folder; give one that holds YAML files")
        self.folders = [*(folder.resolve() for folder in folders), conf_folder()]

    def __enter__(self) -> ConfigLoader:
        _composing.acquire()
        try:
            GlobalHydra.instance().clear()
            return open_config_loader(CheckedFiles, self.folders)
        except BaseException:
            _composing.release()
            raise

    def __exit__(self, *_: object) -> None:
        GlobalHydra.instance().clear()
        _composing.release()

    def confs(self) -> list[str]:
        """Return the names that ``conf=`` accepts."""
        with self as loader:
            return confs_of(loader)

    def groups(self) -> list[str]:
        """Return the names of the config groups; nested ones have a slash (``search/sampler``)."""
        with self as loader:
            return groups_of(loader)

    def options(self, group: str) -> list[str]:
        """Return the options of a config group."""
        with self as loader:
            return sorted(loader.get_group_options(group, ObjectType.CONFIG))

    def header(self, name: str) -> str:
        """Return the first comment line of a config's file, which describes it; empty if it has none."""
        for folder in self.folders:
            path = folder / f"{name}.yaml"
            if path.is_file():
                first = path.read_text(encoding="utf-8", errors="replace").split("\n", 1)[0]
                return first.removeprefix("#").strip() if first.startswith("#") else ""
        return ""


def confs_of(loader: ConfigLoader) -> list[str]:
    """Return the names of the configs that can be run."""
    return sorted(name for name in loader.get_group_options("", ObjectType.CONFIG) if not name.startswith("_"))


def groups_of(loader: ConfigLoader, parent: str = "") -> list[str]:
    """Return the names of the config groups below a group, without Hydra's own."""
    found: list[str] = []
    for name in loader.list_groups(parent):
        group = f"{parent}/{name}" if parent else name
        if group == "hydra":
            continue
        if loader.get_group_options(group, ObjectType.CONFIG):
            found.append(group)
        found.extend(groups_of(loader, group))
    return sorted(found)
