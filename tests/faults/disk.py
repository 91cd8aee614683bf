"""A disk of its own for a sweep's folder, which can be full, frozen or broken. It needs root."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

MIB = 400


class Disk:
    """An ext4 file system in a file, mounted at a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._image = folder.with_name(f"{folder.name}.img")
        folder.mkdir(parents=True)
        with self._image.open("wb") as file:
            file.truncate(MIB << 20)
        _command("mkfs.ext4", "-q", str(self._image))
        self.mount()

    @staticmethod
    def is_possible() -> bool:
        """Whether this machine has loop devices, and lets this process mount."""
        return os.geteuid() == 0 and Path("/dev/loop0").exists()

    def mount(self) -> None:
        _command("mount", "-o", "loop", str(self._image), str(self.folder))

    def unmount(self) -> None:
        _command("umount", "--lazy", str(self.folder))

    def fill(self) -> None:
        """Fill the disk to the last byte, until ``free``."""
        with (self.folder / ".filler").open("wb", buffering=0) as file:
            try:
                while file.write(bytes(1 << 20)):
                    pass
            except OSError:
                pass

    def free(self) -> None:
        (self.folder / ".filler").unlink(missing_ok=True)

    def freeze(self) -> None:
        """Let all writers wait until ``thaw``."""
        _command("fsfreeze", "-f", str(self.folder))

    def thaw(self) -> None:
        _command("fsfreeze", "-u", str(self.folder))

    def break_down(self) -> None:
        """Make the disk read-only, as the kernel does when it fails, until ``repair``."""
        _command("mount", "-o", "remount,abort", str(self.folder))

    def repair(self) -> None:
        _command("umount", str(self.folder))
        subprocess.run(["e2fsck", "-p", str(self._image)], capture_output=True, check=False)
        self.mount()


def _command(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
