"""Non-blocking text output, for readers that may stop reading: a terminal after Ctrl-S, a suspended connection, `|
less`."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TextIO

from rich.console import Console

MOST_LINES = 10_000
"""Maximum number of lines that wait for a reader; then the oldest is left out."""
MOST_DRAWINGS = 100
"""Maximum number of drawings that wait for a terminal; each replaces the one before."""


class UnblockedOutput:
    """Text stream that writes to another stream on a thread of its own. An error there is raised by the next
    ``write``."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.encoding: str | None = getattr(stream, "encoding", None)
        self._waiting: deque[str] = deque(maxlen=MOST_DRAWINGS if stream.isatty() else MOST_LINES)
        self._changed = threading.Condition()
        self._is_closed = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._pass_on, name="output", daemon=True)
        self._thread.start()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Queue text for writing.

        Raises:
            OSError: An earlier text could not be written.
        """
        with self._changed:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            self._waiting.append(text)
            self._changed.notify()
        return len(text)

    def flush(self) -> None:
        """Do nothing: each text is flushed when it has been written."""

    def close(self) -> Exception | None:
        """Wait until all text is written; return an error that no ``write`` has raised."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()
        return self._error

    def _pass_on(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return
                text = self._waiting.popleft()
            try:
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError) as error:  # its reader has gone, its disk is full, or it is closed
                self._error = error


@contextmanager
def unblocked(console: Console) -> Iterator[None]:
    """Let a console print without waiting for its reader. The end of the block waits until all is written."""
    before = console.file
    output = UnblockedOutput(before)
    console.file = _as_file(output)
    try:
        yield
    finally:
        console.file = _as_file(None if console.stderr else before)  # None: what sys.stderr is then
        if isinstance(output.close(), BrokenPipeError):
            console.on_broken_pipe()  # as it does itself if it prints again


def _as_file(output: UnblockedOutput | IO[str] | None) -> TextIO:
    return output  # type: ignore[return-value] # rich only writes to it, and asks what it is
