"""Process that holds a training's snapshot in shared memory and writes it to the checkpoint folder.

It belongs to no worker: if they are killed, it finishes what it writes, and keeps the snapshot for those that continue
the training on this node. It is a program that imports only the standard library, so that it starts within
milliseconds and takes little memory.

It is given a folder in shared memory. A worker connects to the socket there, and sends lines of JSON::

    {"watch": PROCESS}                    the process that has started the worker; no answer
    {"write": PATH}                       the snapshot is whole: write it as the checkpoint PATH
    {"forget": true}                      the training is over: remove the snapshot and end; no answer

The holder sends the state of the snapshot as a line when a worker connects, and after each write::

    {"written": PATH or null, "seal": TEXT of its seal, "error": [number, text, file] or null}

A worker that overwrites its part of the snapshot makes the file ``changed`` before, so that the changed snapshot is not
taken for the written checkpoint.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Any

from sweeps_train.checkpoints.integrity import BLOCK, SEAL_FILE, ChecksummedFile, finish, remove_folder
from sweeps_train.files.atomic_write import unfinished

FILES = "files"
"""Folder of the snapshot's files, in the holder's folder."""
SOCKET = "socket"
IDENTITY = "identity"
"""File with a text that is unique to this holder, by which workers find out that they are on the same node."""
LOCK = "lock"
WORKER = "worker"
"""File that the connected worker locks: if the holder is killed, the worker still writes the snapshot."""
CHANGED = "changed"
"""File that exists while the snapshot is being changed, until it is complete."""
_EMPTY = {"written": None, "seal": None, "error": None}
KEPT_S = 300.0
"""Seconds for which a snapshot is kept after the worker has ended, while the process that started the worker lives."""
LOOK_EVERY_S = 0.5


def main() -> None:
    """Start the holder of a folder: ``holder FOLDER WATCHED``, where ``WATCHED`` is the process that started the
    worker. Returns once it listens; with status 1 if the folder already has a holder."""
    folder, watched = Path(sys.argv[1]), int(sys.argv[2])
    lock = locked(folder)
    if lock is None:
        sys.exit(1)
    for name in (FILES, SOCKET):  # of a holder that was killed
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).unlink(missing_ok=True)
    (folder / IDENTITY).write_text(os.urandom(16).hex(), encoding="ascii")
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(folder / SOCKET))
    server.listen()
    if os.fork():
        os._exit(0)  # the worker waits for this process alone, and Ray ends only a worker's own children with it
    os.setsid()  # Ctrl-C in a terminal is meant for others
    try:
        Holder(folder, server, watched).serve()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def locked(folder: Path, name: str = LOCK) -> int | None:
    """Lock a file in a folder for the lifetime of this process or its child; None if another process holds the lock."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / name, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


class Holder:
    """The holder's server, which serves one worker at a time."""

    def __init__(self, folder: Path, server: socket.socket, watched: int):
        self._folder, self._server = folder, server
        self._watch(watched)
        self._state: dict[str, Any] = dict(_EMPTY)

    def serve(self) -> None:
        """Serve until the training is over or no worker continues it."""
        connection: socket.socket | None = None
        received = b""
        deadline = time.monotonic() + KEPT_S
        while connection is not None or (time.monotonic() < deadline and self._is_watched_alive()):
            sources = [self._server] if connection is None else [self._server, connection]
            ready, _, _ = select.select(sources, [], [], LOOK_EVERY_S)
            if connection in ready and connection is not None:
                content = _received(connection)
                received += content
                *lines, received = received.split(b"\n")
                for line in lines:
                    if not self._obey(json.loads(line), connection):
                        return
                if not content:  # the worker is gone
                    connection.close()
                    connection, deadline = None, time.monotonic() + KEPT_S
            elif self._server in ready:  # a worker that continues; the one before is dead, but a child may still have
                if connection is not None:  # its connection open
                    connection.close()
                connection, received = self._server.accept()[0], b""
                self._send(connection)

    def _obey(self, message: dict[str, Any], connection: socket.socket) -> bool:
        """Execute a worker's request; return whether to continue."""
        if "forget" in message:
            return False
        if "watch" in message:
            self._watch(message["watch"])
            return True
        self._state = dict(_EMPTY)
        (self._folder / CHANGED).unlink(missing_ok=True)  # all parts are there, and stay until the answer
        path = Path(message["write"])
        try:
            self._state |= {"seal": write_files(self._folder / FILES, path), "written": str(path)}
        except OSError as error:
            self._state["error"] = [error.errno, error.strerror or str(error), str(error.filename or "")]
        self._send(connection)
        return True

    def _send(self, connection: socket.socket) -> None:
        state = _EMPTY if (self._folder / CHANGED).exists() else self._state
        with contextlib.suppress(OSError):  # the worker is dead, which the next read shows
            connection.sendall(json.dumps(state).encode() + b"\n")

    def _watch(self, process: int) -> None:
        self._watched, self._watched_since = process, start_time(process)

    def _is_watched_alive(self) -> bool:
        return self._watched_since is not None and start_time(self._watched) == self._watched_since


def write_files(source: Path, path: Path) -> str:
    """Write a snapshot's files as a checkpoint, sealed with checksums of the memory's content; return the seal."""
    folder, sums = unfinished(path), {}
    shutil.rmtree(folder, ignore_errors=True)
    for file in sorted(each for each in source.rglob("*") if each.is_file()):
        name = file.relative_to(source)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as held, ChecksummedFile(folder / name) as written:
            while block := held.read(BLOCK):
                written.write(block)
        sums[str(name)] = written.sum
    if path.exists():  # the same step was written by a worker that had lost the connection to its node, or by a holder
        remove_folder(folder)  # that was killed before it could answer
    else:
        finish(folder, path, sums)
    return (path / SEAL_FILE).read_text(encoding="utf-8")


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(BLOCK)
    except OSError:
        return b""


def start_time(process: int) -> str | None:
    """Return the start time of a process in kernel ticks, which distinguishes it from a later process with the same id;
    None if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def remove_left(folders: list[Path]) -> None:
    """Remove the folders that killed holders and their workers have left; their locks are free."""
    for folder in folders:
        with contextlib.suppress(OSError), contextlib.ExitStack() as locks:
            if time.time() - folder.stat().st_mtime < 2 * LOOK_EVERY_S:
                continue  # it may be about to be locked
            for name in (LOCK, WORKER):
                descriptor = locked(folder, name)
                if descriptor is None:
                    break
                locks.callback(os.close, descriptor)
            else:
                shutil.rmtree(folder, ignore_errors=True)
