"""Redirection of a worker's standard output and error, including those of native code and child processes, to the log
file of the trial that it trains."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import fcntl
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from sweeps.folders.trial_files import START_LINE, log_name
from sweeps.runtime import log_writer

STACKS_SIGNAL = signal.SIGRTMIN + 9
"""Signal that makes a worker write the stacks of all its threads into its log, even if native code holds the GIL."""
WRITTEN_WITHIN_S = 10.0
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class WorkerLog:
    """Redirects one worker's output, from the start to the end of each trial."""

    def __init__(self, rank: int, num_workers: int) -> None:
        self._rank, self._num_workers = rank, num_workers
        self._originals = os.dup(1), os.dup(2)
        self._written = threading.Event()
        self._control, remote = socket.socketpair(type=socket.SOCK_SEQPACKET)  # keeps messages apart
        with remote, contextlib.suppress(OSError):
            command = [sys.executable, "-I", "-S", log_writer.__file__, str(remote.fileno())]
            quiet = subprocess.DEVNULL
            subprocess.run(  # returns when the writer has forked
                command,
                pass_fds=[remote.fileno()],
                stdin=quiet,
                stdout=quiet,
                stderr=quiet,
                start_new_session=True,
                check=False,
            )
        self._pipe = -1
        self._has_writer = True
        threading.Thread(target=self._follow, name="worker-log", daemon=True).start()
        faulthandler.enable(2, all_threads=True)
        faulthandler.register(STACKS_SIGNAL, 2, all_threads=True)
        # For loggers without a handler; a user's own configuration of logging takes precedence.
        if logging.lastResort is not None:
            logging.lastResort.setFormatter(logging.Formatter(FORMAT))
            logging.lastResort.setLevel(logging.NOTSET)
        if logging.getLogger().level == logging.WARNING:
            logging.getLogger().setLevel(logging.INFO)

    @contextlib.contextmanager
    def of_trial(self, folder: str) -> Iterator[None]:
        """Write the worker's log into a trial's folder inside a ``with`` block."""
        self._begin(Path(folder) / log_name(self._rank))
        try:
            yield
        finally:
            self._end()

    def _begin(self, path: Path) -> None:
        if not self._has_writer:
            return
        self._pipe, into = os.pipe()
        with contextlib.suppress(OSError):  # above the limit of unprivileged users
            fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, log_writer.PIPE_BYTES)
        with contextlib.suppress(OSError):  # the writer has died: `_follow` reads the pipe
            socket.send_fds(self._control, [json.dumps(str(path)).encode()], [self._pipe])
        worker = f"worker {self._rank} of {self._num_workers} on {socket.gethostname()}, process {os.getpid()}"
        os.write(into, f"{START_LINE}{worker}, {time.strftime('%Y-%m-%d %H:%M:%S')} ---\n".encode())
        _redirect(into, into)
        os.close(into)
        for name, number in (("stdout", 1), ("stderr", 2)):
            if getattr(getattr(sys, name), "closed", False):  # by an earlier trial
                setattr(sys, name, stream_to(number))

    def _end(self) -> None:
        ctypes.CDLL(None).fflush(None)  # buffers of native code
        _redirect(*self._originals)
        self._written.clear()
        with contextlib.suppress(OSError):
            self._control.sendall(b"?")
            self._written.wait(WRITTEN_WITHIN_S)
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)

    def _follow(self) -> None:
        """Drain the pipe if the writer dies, so that output never blocks or fails the training."""
        with contextlib.suppress(OSError):
            while self._control.recv(1):
                self._written.set()
        self._has_writer = False
        self._written.set()
        _redirect(*self._originals)
        with contextlib.suppress(OSError):
            while os.read(self._pipe, log_writer.READ):
                pass


def stream_to(number: int) -> TextIO:
    """Open a stream that writes any text to a file descriptor, which it does not close."""
    return open(number, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _redirect(out: int, err: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # it may be the user's own
            stream.flush()
    os.dup2(out, 1)
    os.dup2(err, 2)
