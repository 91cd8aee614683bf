"""Where configs are found: users' folders, then our own ``conf/``."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType

from sweeps.compose.config_source import CheckedFiles, register_source
from sweeps.errors import UnknownName

_composing = threading.RLock()
"""Hydra's state belongs to the whole process: the service's threads compose one after another."""


def conf_folder() -> Path:
    """Our own ``conf/``: inside an installed package, beside it in a checkout."""
    package = Path(__file__).parent.parent
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
        _composing.acquire()
        try:
            return self._open()
        except BaseException:
            _composing.release()
            raise

    def _open(self) -> ConfigLoader:
        search_path = create_config_search_path(f"{CheckedFiles.scheme()}://{self.folders[-1]}")
        register_source()
        for index, folder in enumerate(self.folders[:-1]):
            search_path.prepend(f"user{index}", f"{CheckedFiles.scheme()}://{folder}", anchor="main")
        GlobalHydra.instance().clear()
        return Hydra.create_main_hydra2("sweeps", search_path).config_loader

    def __exit__(self, *_: object) -> None:
        GlobalHydra.instance().clear()
        _composing.release()

    def confs(self) -> list[str]:
        """Names that ``conf=`` takes."""
        with self as loader:
            return confs_of(loader)

    def groups(self) -> list[str]:
        """Names of the groups, nested ones with a slash."""
        with self as loader:
            return groups_of(loader)

    def options(self, group: str) -> list[str]:
        with self as loader:
            return sorted(loader.get_group_options(group, ObjectType.CONFIG))

    def header(self, name: str) -> str:
        """First comment line of a YAML: what it is."""
        for folder in self.folders:
            path = folder / f"{name}.yaml"
            if path.is_file():
                first = path.read_text(encoding="utf-8", errors="replace").split("\n", 1)[0]
                return first.removeprefix("#").strip() if first.startswith("#") else ""
        return ""


def confs_of(loader: ConfigLoader) -> list[str]:
    return sorted(name for name in loader.get_group_options("", ObjectType.CONFIG) if not name.startswith("_"))


def groups_of(loader: ConfigLoader, parent: str = "") -> list[str]:
    found: list[str] = []
    for name in loader.list_groups(parent):
        group = f"{parent}/{name}" if parent else name
        if group == "hydra":
            continue
        if loader.get_group_options(group, ObjectType.CONFIG):
            found.append(group)
        found.extend(groups_of(loader, group))
    return sorted(found)
