"""A program that a worker has started: its process group, output and exit."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from sweeps_train.command import guard

READ = 2**16
KEPT_LINES = 200
"""Number of last lines of output that are kept for the error message of a failed program."""
KEPT_CHARACTERS = 2000
"""Maximum characters kept of each line."""
OUTPUT_WITHIN_S = 5.0
"""Maximum seconds to read the output after a program has ended, while a process that it started still holds the
pipe."""
_LINE_END = re.compile(r"[\r\n]")


class Program:
    """A program and all processes that it starts. Its output goes to the worker's output and, line by line, to a
    reader. If the worker dies, the program is ended too."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        environment: Mapping[str, str],
        grace_s: float,
        folder: str | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        """Start a program with exactly this environment, by default in the working folder of this process. ``grace_s``
        are the seconds from SIGTERM to SIGKILL when it is ended; ``on_line`` is called by other threads with each line
        of output, never concurrently.

        Raises:
            OSError: The program cannot be started.
        """
        self.name = words[0]
        self._grace_s = grace_s
        self._on_line = on_line
        self._lock = threading.Lock()
        self.last_lines: deque[str] = deque(maxlen=KEPT_LINES)
        """The last non-empty lines of output, with indentation."""
        self._process = subprocess.Popen(
            list(words),
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a process group of its own
        )
        self._guard: int | None = _start_guard(self._process.pid, grace_s)
        assert self._process.stdout is not None and self._process.stderr is not None
        self._readers = [
            threading.Thread(target=self._pass_on, args=(stream, target), name="program-output", daemon=True)
            for stream, target in ((self._process.stdout, 1), (self._process.stderr, 2))
        ]
        for reader in self._readers:
            reader.start()

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while the program runs."""
        return self._process.poll()

    def wait(self) -> int:
        """Wait until the program ends, and return its exit status."""
        return self._process.wait()

    def end(self) -> None:
        """End the program and its child processes: SIGTERM, then SIGKILL after ``grace_s``. Returns when all have ended
        and the output is read. Idempotent."""
        ended = threading.Thread(target=guard.end_group, args=(self._process.pid, self._grace_s, {}), daemon=True)
        ended.start()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(self._grace_s + 1)  # otherwise the group keeps its dead leader
        ended.join()
        self._process.wait()
        self.finish_output()
        pipe, self._guard = self._guard, None
        if pipe is not None:
            with contextlib.suppress(OSError):  # the guard was killed
                os.write(pipe, b".")
            os.close(pipe)

    def finish_output(self) -> None:
        """Wait until the output of an ended program is read."""
        deadline = time.monotonic() + OUTPUT_WITHIN_S
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))

    def _pass_on(self, source: IO[bytes], target: int) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        unfinished: list[str] = []
        """Pieces of the last line, joined at its end, since a line may be as long as memory allows."""
        with source:
            while data := os.read(source.fileno(), READ):
                with contextlib.suppress(OSError):  # the worker's own output is gone: the program must not notice
                    os.write(target, data)
                first, *others = _LINE_END.split(decoder.decode(data))
                unfinished.append(first)
                if others:
                    self._take(["".join(unfinished), *others[:-1]])
                    unfinished = others[-1:]
        self._take(["".join(unfinished)])

    def _take(self, lines: Sequence[str]) -> None:
        with self._lock:
            for line in lines:
                if line.strip():
                    self.last_lines.append(line.rstrip()[:KEPT_CHARACTERS])
                    if self._on_line is not None:
                        self._on_line(line)


def describe_status(status: int) -> str:
    """Return an exit status in words.

    >>> describe_status(3), describe_status(-9)
    ('ended with status 3', 'was ended by SIGKILL')
    """
    if status >= 0:
        return f"ended with status {status}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"


def _start_guard(group: int, grace_s: float) -> int:
    """Start the guard of a process group; return the pipe that tells the guard when the program has ended."""
    read, write = os.pipe()
    try:
        subprocess.run(  # returns when the guard has forked
            [sys.executable, "-I", "-S", guard.__file__, str(group), str(grace_s)],
            stdin=read,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    finally:
        os.close(read)
    return write
