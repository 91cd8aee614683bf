"""A worker's connection to the holder of its training's snapshot."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps_train.checkpoints.integrity import BLOCK, SEAL_FILE
from sweeps_train.snapshots import holder

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - names there are this user's own
START_WITHIN_S = 60.0
RELEASED_WITHIN_S = 1.0
"""Maximum seconds until the lock of a holder that was killed is free."""
_PREFIX = f"sweeps-{os.getuid()}-"
_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from sweeps_train.snapshots import holder; holder.main()"


def holder_folder(root: Path) -> Path:
    """Return the folder in shared memory for the snapshot of a training, by its checkpoint folder."""
    trained = f"{socket.gethostname()} {root.absolute()}"  # containers may share the memory of a machine
    name = hashlib.sha256(trained.encode()).hexdigest()[:24]
    return SHARED_MEMORY / f"{_PREFIX}{name}"


@dataclass(frozen=True)
class HeldState:
    """State of a snapshot, as its holder reports it."""

    written: Path | None
    """The checkpoint with the same content; None if the snapshot is empty, being changed, or could not be written."""
    seal: str | None
    """Seal of the written checkpoint."""
    error: OSError | None

    @property
    def is_stored(self) -> bool:
        """Whether the written checkpoint still exists unchanged."""
        if self.written is None:
            return False
        try:
            return (self.written / SEAL_FILE).read_text(encoding="utf-8") == self.seal
        except OSError:
            return False


class HolderConnection:
    """Connection of rank 0 to the process that holds the snapshot."""

    def __init__(self, folder: Path, connected: socket.socket):
        self.folder, self.identity = folder, read_identity(folder)
        """The holder's folder, and the random text in it, which only workers of this node can read."""
        self._lock: int | None = None
        """Lock of the folder, once its holder was killed: another one would begin there."""
        self._socket, self._received = connected, b""
        self.state = self._receive()
        self._send({"watch": os.getppid()})
        self._kept = holder.locked(folder, holder.WORKER)

    @classmethod
    def to_existing(cls, root: Path) -> HolderConnection | None:
        """Connect to the holder that earlier workers left on this node; waits while it is writing. None if there is
        none."""
        folder = holder_folder(root)
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.connect(str(folder / holder.SOCKET))
            return cls(folder, connected)
        except OSError:
            connected.close()
            return None

    @classmethod
    def to_new(cls, root: Path) -> HolderConnection:
        """Start a holder, and connect to it.

        Raises:
            OSError: The holder did not start.
        """
        folder = holder_folder(root)
        holder.remove_left([each for each in SHARED_MEMORY.glob(f"{_PREFIX}*") if each != folder])
        package = Path(__file__).parents[2]
        subprocess.run(  # returns when the holder listens
            [sys.executable, "-I", "-S", "-c", _START, str(package), str(folder), str(os.getppid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=START_WITHIN_S,
        )
        connection = cls.to_existing(root)
        if connection is None:
            raise OSError(f"the process that holds checkpoints in memory did not start in {folder}")
        return connection

    @property
    def files(self) -> Path:
        """Folder of the snapshot's files."""
        return self.folder / holder.FILES

    def write(self, path: Path, on_told: Callable[[], object] = lambda: None) -> HeldState:
        """Have the holder write the snapshot as a checkpoint, and wait for it. ``on_told`` is called when the holder
        has received the request; it then writes the checkpoint even if this process dies. If the holder was killed,
        as when memory runs out, this process writes the checkpoint.

        Raises:
            OSError: The checkpoint cannot be written, or the snapshot is gone.
        """
        try:
            self._send({"write": str(path.absolute())})
            on_told()
            self.state = self._receive()
        except OSError:
            if not self._outlives_holder():
                raise
            seal = holder.write_files(self.files, path.absolute())
            self.state = HeldState(written=path.absolute(), seal=seal, error=None)
        if self.state.error is not None:
            raise self.state.error
        return self.state

    def forget(self) -> None:
        """End the holder after the training; returns when shared memory is freed."""
        with contextlib.suppress(OSError):
            self._send({"forget": True})
            while self._socket.recv(1):
                pass
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Disconnect, and leave the snapshot to the workers that continue the training, if its holder lives."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for lock in (self._lock, self._kept):
            if lock is not None:
                os.close(lock)
        self._lock = self._kept = None

    def _outlives_holder(self) -> bool:
        """Whether the holder was killed and its files are there, which this process keeps from now on."""
        deadline = time.monotonic() + RELEASED_WITHIN_S
        while self._lock is None and read_identity(self.folder) == self.identity and time.monotonic() < deadline:
            self._lock = holder.locked(self.folder)  # None while the holder lives: it serves another worker
            time.sleep(0.01)
        return self._lock is not None and read_identity(self.folder) == self.identity

    def _send(self, message: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _receive(self) -> HeldState:
        while b"\n" not in self._received:
            content = self._socket.recv(BLOCK)
            if not content:
                raise OSError(f"the process that holds checkpoints in memory, in {self.folder}, has ended")
            self._received += content
        line, _, self._received = self._received.partition(b"\n")
        told = json.loads(line)
        written, error = told["written"], told["error"]
        return HeldState(
            written=None if written is None else Path(written),
            seal=told["seal"],
            error=None if error is None else OSError(*error) if error[0] is not None else OSError(error[1]),
        )


def read_identity(folder: Path) -> str:
    """Return the identity of the holder of a folder; empty if there is none on this node."""
    try:
        return (folder / holder.IDENTITY).read_text(encoding="ascii")
    except OSError:
        return ""


def mark_changed(folder: Path) -> None:
    """Record that a worker on the holder's machine is about to change a snapshot."""
    (folder / holder.CHANGED).touch()
