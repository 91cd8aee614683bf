"""Search path of configs: users' folders, then the ``conf/`` that comes with Sweeps."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra

from sweeps.compat.hydra import open_config_loader
from sweeps.compose.config_source import CheckedFiles
from sweeps.errors import UnknownName
from sweeps.folders.conf_folders import ConfFolders

_composing = threading.RLock()
"""Lock around every composition: Hydra's state is global to the process, and the service has several threads."""


class ConfSearchPath(ConfFolders):
    """Folders of configs; as a context manager, a Hydra composition from them."""

    def __init__(self, folders: Sequence[Path] = ()):
        """The ``conf/`` of Sweeps is added after users' folders.

        Raises:
            UnknownName: A folder does not exist.
        """
        folders = [folder.expanduser() for folder in folders]  # no shell does it in --config-dir=~/conf
        for folder in folders:
            if not folder.is_dir():
                raise UnknownName(f"--config-dir={folder}: there is no such folder; give one that holds YAML files")
        super().__init__([folder.resolve() for folder in folders])
        self._outer: list[Any] = []
        """State of Hydra for each composition around this one, such as one in a user's own program."""

    def __enter__(self) -> None:
        _composing.acquire()
        self._outer.append(GlobalHydra.instance().hydra)
        try:
            GlobalHydra.instance().clear()
            open_config_loader(CheckedFiles, self.folders)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        GlobalHydra.instance().hydra = self._outer.pop()
        _composing.release()
