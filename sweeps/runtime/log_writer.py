"""Process that writes a worker's output to the trial's log file, and outlives the worker to write all of it.

It is a program that imports only the standard library, so that it starts within milliseconds. Over a socket it receives
pipes, each with the path of a file. The file keeps the beginning and the end of a long output, with the number of
omitted bytes between them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import socket
import sys
import time
from pathlib import Path

HEAD = TAIL = 2**20
"""Bytes that are kept of a file's beginning and of its end."""
LARGEST = 4 * 2**20
"""Size in bytes at which a file is cut to its beginning and its end."""
READ = 2**18
PIPE_BYTES = 2**20
"""Maximum bytes that a pipe holds."""
AFTER_DEATH_S = 5.0
"""Seconds to wait for children of a dead worker that still hold a pipe."""
LEFT_OUT = re.compile(rb"^\[sweeps: (\d[\d,]*) bytes are left out here\]\n", re.MULTILINE)
ACK = b"."


class BoundedFile:
    """Log file that is appended to and never grows beyond a limit. Output that does not fit on a full disk is dropped,
    so that the training is not delayed."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._file = -1
        self._size = 0
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._open()

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            if self._file < 0:
                self._open()
            while data:
                written = os.write(self._file, data)
                self._size += written
                data = data[written:]
            if self._size > LARGEST:
                self._cut()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._size = os.fstat(self._file).st_size

    def _cut(self) -> None:
        """Replace the file by a new one with its beginning, the number of omitted bytes, and its end."""
        head, earlier = os.pread(self._file, HEAD, 0), 0
        if (notice := LEFT_OUT.search(os.pread(self._file, HEAD + 100, 0))) is not None:
            head, earlier, between = head[: notice.start()], int(notice[1].replace(b",", b"")), notice.end()
        else:
            head = head[: head.rfind(b"\n") + 1 or HEAD]
            between = len(head)
        tail = os.pread(self._file, TAIL, self._size - TAIL)
        tail = tail[tail.find(b"\n", 0, TAIL // 16) + 1 :]
        left_out = earlier + self._size - len(tail) - between
        folder = self._path.parent
        new = folder.with_name(f".{folder.name}-{self._path.name}.new")  # not in the folder of logs
        line = f"[sweeps: {left_out:,} bytes are left out here]\n".encode()
        new.write_bytes(head + (b"" if head.endswith(b"\n") else b"\n") + line + tail)
        new.replace(self._path)
        self.close()
        self._open()


class Writer:
    """Reads all pipes until the worker and its children have ended."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._files: dict[int, BoundedFile] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._ends_at = float("inf")

    def run(self) -> None:
        while (self._files or self._ends_at == float("inf")) and time.monotonic() < self._ends_at:
            for key, _ in self._selector.select(None if self._ends_at == float("inf") else 0.2):
                if key.fileobj is self._control:
                    self._receive()
                else:
                    self._read(key.fd)

    def _receive(self) -> None:
        try:
            message, pipes, _, _ = socket.recv_fds(self._control, 2**16, 1)
        except OSError:
            message, pipes = b"", []
        if pipes:
            (pipe,) = pipes
            os.set_blocking(pipe, False)
            self._files[pipe] = BoundedFile(json.loads(message))
            self._selector.register(pipe, selectors.EVENT_READ)
        elif message:  # the worker asks for an answer when everything is written
            for pipe in list(self._files):
                left = PIPE_BYTES  # what waits there now; a child may print forever
                while left > 0 and (read := self._read(pipe)):
                    left -= read
            with contextlib.suppress(OSError):
                self._control.sendall(ACK)
        else:
            self._selector.unregister(self._control)
            self._ends_at = time.monotonic() + AFTER_DEATH_S

    def _read(self, pipe: int) -> int:
        """Copy the content of a pipe to its file; return the number of bytes. A pipe without a writer is closed."""
        if pipe not in self._files:  # closed since the events were selected
            return 0
        try:
            data = os.read(pipe, READ)
        except BlockingIOError:
            return 0
        if data:
            self._files[pipe].write(data)
            return len(data)
        self._selector.unregister(pipe)
        os.close(pipe)
        self._files.pop(pipe).close()
        return 0


def main() -> None:
    if os.fork():  # to be no child of the worker, whose death would end its children
        os._exit(0)
    Writer(socket.socket(fileno=int(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
