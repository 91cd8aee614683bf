"""Files that are sent to a cluster with a sweep: the modules, configs and small data of the working folder."""

from __future__ import annotations

import logging
import os
import subprocess
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from sweeps.errors import FULL, UserError
from sweeps.folders.conf_folders import conf_folder
from sweeps.folders.sweep_folder import COPY_FILE, SWEEP_FILE

logger = logging.getLogger(__name__)

MIB = 2**20
MAX_CODE = 100 * MIB
"""Maximum bytes of the archive, which every node of a Ray cluster downloads."""
MAX_FILES = 20_000
OF_GIT = ".gitignore, which is read in a git repository only (`git init` makes one)"
OUTPUTS = "outputs"
"""Folder of the sweeps that were started without ``output_dir``."""
LEFT_OUT = {"__pycache__", "node_modules", "mlruns", "mlartifacts"}
"""Folders that are never sent, in addition to hidden ones, environments and the sweeps' own folder."""
DATABASES = (".db", ".db-wal", ".db-shm", ".db-journal")
TOP_FILE = "SUBMITTED.txt"
"""File at the top of every archive: Ray strips a top folder that is the only entry."""
CONFIGS = "submitted_configs"
"""Folder of the bundle for configs from outside of the working folder."""


@dataclass(frozen=True)
class Bundle:
    """Files by their path in the archive."""

    files: dict[str, Path] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)
    """Links to folders, which are left out: most lead to data."""

    @classmethod
    def of_folder(cls, folder: Path, leave_out: Path) -> Bundle:
        """Return the files of a folder, except folders of sweeps, those that git ignores, environments, databases,
        hidden folders and links to folders.

        Raises:
            UserError: The folder holds too many files to be a project, or git refuses to list them.
        """
        bundle, leave_out = cls(), leave_out.absolute()
        # The copy beside a sweep's file tells it from a folder of code with a file of that name.
        found = [*(folder / OUTPUTS).glob(f"*/{SWEEP_FILE}"), *leave_out.glob(f"*/{COPY_FILE}")]
        left_out = {file.parent for file in found}
        if not folder.is_relative_to(leave_out):  # as output_dir=/shared, in /shared/project
            left_out.add(leave_out)
        for path in _own_files(folder):
            name = path.relative_to(folder).as_posix()
            if path.name.endswith(DATABASES) or not left_out.isdisjoint([path, *path.parents]):
                continue
            if path.is_file():
                bundle.add(name, path)
            elif path.is_dir():
                bundle.links.append(name)
        return bundle

    def add_folder(self, folder: Path, name: str, pattern: str = "*") -> None:
        """Add a folder under another path in the archive."""
        for path in sorted(folder.rglob(pattern)):
            if path.is_file() and "__pycache__" not in path.parts:
                self.add(f"{name}/{path.relative_to(folder).as_posix()}", path)

    def has_folder(self, name: str) -> bool:
        """Whether a folder with this path in the archive has files."""
        return any(Path(each).is_relative_to(name) for each in self.files)

    def add(self, name: str, path: Path) -> None:
        """Add one file.

        Raises:
            UserError: There are too many files, or its name cannot be in an archive.
        """
        try:
            name.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"{os.fsencode(path)!r}: the file's name is not UTF-8, which no archive can hold; rename the file, or "
                f"exclude it in {OF_GIT}"
            ) from None
        self.files[name] = path
        if len(self.files) > MAX_FILES:
            raise UserError(
                f"more than {MAX_FILES:,} files would be sent to the cluster, {path} among them; submit from the "
                f"folder of your code, or exclude other files in {OF_GIT}"
            )

    def add_sweeps(self) -> None:
        """Add Sweeps itself with its configs, for a cluster on which it is missing or has another version."""
        for package in ("sweeps", "sweeps_train"):
            found = find_spec(package)
            assert found is not None
            assert found.origin is not None
            self.add_folder(Path(found.origin).parent, package)
        self.add_folder(conf_folder(), "sweeps/conf", "*.yaml")

    def write(self, archive: Path, limit: int, advice: str) -> Path:
        """Write the files as a zip archive of at most ``limit`` bytes; the same contents give the same bytes. A warning
        names the links that are left out.

        Raises:
            UserError: The archive is larger; the message names the largest files, and ends with the advice. Or a file
                cannot be read.
            OSError: The disk of the archive is full.
        """
        if self.links:
            named = ", ".join(self.links[:3]) + (", ..." if len(self.links) > 3 else "")
            logger.warning("links to folders are not sent, not even if they hold code: %s", named)
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr(zipfile.ZipInfo(TOP_FILE), "Files of a sweep, packed by `python -m sweeps submit`.\n")
            for name, path in sorted(self.files.items()):
                entry = zipfile.ZipInfo(name)
                mode = 0o755 if os.access(path, os.X_OK) else 0o644
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, mode << 16
                try:
                    entry.file_size = path.stat().st_size
                    with path.open("rb") as file, packed.open(entry, "w") as target:
                        while archive.stat().st_size <= limit and (block := file.read(MIB)):
                            target.write(block)
                except OSError as error:
                    if error.errno in FULL:  # the archive's disk
                        raise
                    raise UserError(
                        f"{path}: cannot be packed ({error.strerror}); make it readable, or exclude it in {OF_GIT}"
                    ) from None
                if archive.stat().st_size > limit:
                    break
        if (size := archive.stat().st_size) > limit:
            largest = sorted(self.files.items(), key=lambda each: -each[1].stat().st_size)[:3]
            named = ", ".join(f"{name} ({path.stat().st_size / MIB:.1f} MiB)" for name, path in largest)
            raise UserError(
                f"the files of the working folder are too large to send: {size / MIB:.1f} MiB and more when packed, "
                f"of at most {limit / MIB:g} MiB. The largest are {named}. List what the trials do not "
                f"need in {OF_GIT}{advice}"
            )
        return archive


def _own_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a project, and its links to folders: in a git repository those that git does not ignore,
    otherwise all."""
    if (known := _known_to_git(folder)) is not None:
        for path in (folder / name for name in known if not any(map(_is_left_out, Path(name).parts[:-1]))):
            if not path.is_dir() or path.is_symlink():
                yield path
            elif path != folder:  # a submodule or another repository; git lists one that is not checked out as itself
                yield from _own_files(path)
        return
    for inside, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not _is_left_out(each) and not _is_environment(inside, each))
        links = [each for each in folders if Path(inside, each).is_symlink()]
        yield from (Path(inside, name) for name in sorted([*names, *links]))


def _known_to_git(folder: Path) -> list[str] | None:
    """Return the files that git does not ignore; None if the folder is not in a repository, or git is missing.

    Raises:
        UserError: Git refuses to read the repository, which may ignore secrets.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(
            command, cwd=folder, capture_output=True, check=False, env={**os.environ, "LC_ALL": "C"}
        )
    except FileNotFoundError:
        return None
    if not listed.returncode:
        return [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    reason = listed.stderr.decode(errors="replace").strip()
    found = next((path for each in (folder, *folder.parents) if (path := each / ".git").exists()), None)
    if found is not None and "not a git repository (or any" not in reason.lower():  # said of one on another disk
        raise UserError(
            f"{folder}: git does not tell which files it ignores (repair the repository, or remove {found} to send all "
            f"files): {reason}"
        )
    return None


def _is_left_out(name: str) -> bool:
    return name.startswith(".") or name in LEFT_OUT


def _is_environment(inside: str, name: str) -> bool:
    return any(Path(inside, name, sign).exists() for sign in ("pyvenv.cfg", "conda-meta"))
