"""A folder that all nodes of a cluster must share, with a mark file by which workers verify that they see
the same one."""

from __future__ import annotations

import socket
import uuid
from dataclasses import dataclass
from pathlib import Path

from sweeps.errors import SweepsError
from sweeps.files.whole_files import make_private

MARK = ".shared"
"""File in a sweep's folder with the identity of its driver's session."""


class NotShared(SweepsError):
    """Raised when a worker runs on a node that does not see the sweep's folder."""


@dataclass(frozen=True)
class SharedFolder:
    """A shared folder and the content of its mark file."""

    folder: str
    ident: str
    node: str
    """Name of the driver's machine."""

    @classmethod
    def marked(cls, folder: Path) -> SharedFolder:
        """Write the mark file into a folder.

        Raises:
            OSError: The mark file cannot be written.
        """
        ident = uuid.uuid4().hex
        make_private(folder / MARK)
        (folder / MARK).write_text(ident, encoding="ascii")
        return cls(str(folder), ident, socket.gethostname())

    def is_seen(self) -> bool:
        """Whether this process sees the same folder."""
        try:
            return (Path(self.folder) / MARK).read_text(encoding="ascii") == self.ident
        except OSError:
            return False

    def check(self) -> None:
        """Check that this process sees the folder.

        Raises:
            NotShared: This process does not see the folder.
        """
        if self.is_seen():
            return
        node = socket.gethostname()
        if node == self.node and not (Path(self.folder) / MARK).exists():
            raise NotShared(
                f"the sweep's folder {self.folder} was removed while the sweep ran, and with it the checkpoints of its "
                "trials; restore it from a backup and resume the sweep, or start another one"
            )
        raise NotShared(
            f"node {node} does not see the sweep's folder {self.folder}, so its checkpoints would be lost; mount it "
            "there, or set output_dir to an object store, such as s3://BUCKET/sweeps"
        )
