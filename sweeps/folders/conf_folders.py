"""Folders of configs: users' own, then the ``conf/`` that comes with Sweeps."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

MAX_FOLDERS = 300
"""Maximum number of folders that are read to find the groups in a folder of configs, which may be a home folder."""
MAX_ENTRIES = 1000
"""Maximum number of entries that are read in each of these folders."""


def conf_folder() -> Path:
    """Return the ``conf/`` of Sweeps: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "conf"
    return installed if installed.is_dir() else package.parent / "conf"


class ConfFolders:
    """Names of the YAML files in folders of configs, the first folder having precedence."""

    def __init__(self, folders: Sequence[Path]):
        """
        Args:
            folders: Users' folders; the ``conf/`` of Sweeps is added at the end.
        """
        self.folders = [*folders, conf_folder()]

    def confs(self) -> list[str]:
        """Return the names that ``conf=`` accepts."""
        return [name for name in self.options("") if not name.startswith("_")]

    def is_group(self, name: str) -> bool:
        """Whether a name is that of a config group. Unlike ``groups``, this reads no other folders: a config may be in
        a home folder, or in one with millions of files."""
        parts = name.split("/")
        if {"", ".", ".."} & set(parts) or parts[0] == "hydra":
            return False
        folders = (folder / name for folder in self.folders if os.path.isdir(folder / name))  # noqa: PTH112 - of any length
        return any(next(folder.glob("*.yaml"), None) is not None for folder in folders)

    def groups(self) -> list[str]:
        """Return the names of the config groups, for lists and suggestions; nested ones have a slash
        (``search/sampler``). Groups may be missing if there are very many files or folders."""
        found: set[str] = set()
        for folder in self.folders:
            found.update(each.relative_to(folder).as_posix() for each in _folders_of_yaml(folder))
        return sorted(name for name in found if name != "." and name.partition("/")[0] != "hydra")

    def options(self, group: str) -> list[str]:
        """Return the options of a config group."""
        return sorted({file.stem for folder in self.folders for file in (folder / group).glob("*.yaml")})

    def file(self, name: str) -> Path | None:
        """Return the file of a conf or an option (``model/conv_net``); None if there is none."""
        files = (folder / f"{name}.yaml" for folder in self.folders)
        return next((file for file in files if file.is_file()), None)

    def unlisted(self, conf: str) -> Path | None:
        """Return a file in the working folder or directly below it that ``conf=`` would accept if its folder were given
        with ``--config-dir``; None if there is none."""
        folders = (folder for folder in sorted(Path().glob("*/")) if not self.is_group(folder.name))
        files = (folder / f"{conf}.yaml" for folder in (Path(), *folders))
        return next((file for file in files if os.path.isfile(file)), None)  # noqa: PTH113 - of any length

    def header(self, name: str) -> str:
        """Return the first comment line of a config's file, which describes it; empty if it has none."""
        file = self.file(name) or Path(os.devnull)
        try:
            with file.open(encoding="utf-8", errors="replace") as lines:
                first = lines.readline().strip()
        except OSError:
            return ""
        return first.removeprefix("#").strip() if first.startswith("#") else ""


def _folders_of_yaml(folder: Path) -> Iterator[Path]:
    """Yield a folder and the folders below it that have YAML files, nearest first, within ``MAX_FOLDERS`` folders."""
    waiting = [folder]
    for inner in waiting:  # grows
        try:
            with os.scandir(inner) as listed:
                entries = list(islice(listed, MAX_ENTRIES))
        except OSError:  # such as a folder of another user
            continue
        folders = [each for each in entries if _is_folder(each)]
        below = (Path(each) for each in folders if each.name[0] != "." and not _leads_back(Path(each)))
        waiting.extend(islice(below, MAX_FOLDERS - len(waiting)))
        if any(each.name.endswith(".yaml") and each not in folders for each in entries):
            yield inner


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # such as a link into a folder of another user
        return False


def _leads_back(folder: Path) -> bool:
    """Whether a folder is a link to one of its parents."""
    return folder.is_symlink() and any(folder.samefile(above) for above in folder.parents)
