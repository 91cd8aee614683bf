"""Handling of Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 by the driver: trials save their state and stop; a second signal ends
it at once."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from sweeps.driver.early_end import EarlyEnd
from sweeps.driver.sweep_state import SweepState
from sweeps.errors import ClusterLost

STOP_WITHIN_S = 6.0
"""Maximum seconds for trials to save their state, when the whole sweep ends."""
REPEATED_S = 1.0
"""Seconds until a main thread that has not exited is interrupted again."""
SOON_S = 0.02
"""Seconds until the next attempt to interrupt a main thread that could not be interrupted."""
SAFE_WITHIN_S = 5.0
"""Maximum seconds until the main thread is interrupted wherever it is, since it may be waiting forever."""
_UNSAFE = {
    *(("subprocess", "_execute_child"), ("multiprocessing.popen_fork", "_launch")),
    *(("multiprocessing.util", "spawnv_passfds"), ("logging", "_acquireLock"), ("logging", "_releaseLock")),
    *(("logging", "acquire"), ("logging", "release")),
}
"""Functions that fork a process or hold the lock of logging. Around a fork, Python swallows exceptions, so the lock of
logging may never be released, and the next logged line would wait forever."""
_IMPORTING = {"importlib._bootstrap", "_frozen_importlib"}
"""Modules of Python's import system. A thread that is executing them may hold the lock of all imports; after an
exception there, the next import of another thread would wait forever."""
_LOCKING = {"__enter__", "__exit__", "acquire", "release"}
"""Names of functions that, as the innermost frame, may hold a lock that no caller would release after an exception."""


class LeaveNow(KeyboardInterrupt):
    """Raised in the main thread by a signal. It is a subclass of ``KeyboardInterrupt``, since nothing else ends Ray's
    own calls."""


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 end the driver while it starts or finishes; during the search
    ``ShutdownSignals`` handles them."""
    with _handling(_leave_when_safe):
        yield


class ShutdownSignals:
    """Begins the sweep's shutdown on a signal, with a deadline after which the main thread leaves. Trials that have not
    stopped by then, because they may still be starting, are killed when the cluster is disconnected."""

    def __init__(self, state: SweepState):
        self._state = state
        self._listens = False

    def begin_shutdown(self, status: EarlyEnd, hint: str = "") -> None:
        """Ask all trials to stop, and start the deadline.

        Args:
            status: Status with which the sweep ends.
            hint: Added to the line that is shown.
        """
        if self._state.shutdown.begin(status):
            self._state.announce(f"stopping: trials save their state and end{hint}")
            if self._listens:
                within_s = STOP_WITHIN_S + self._state.composition.config.ends_within_s
                signal.setitimer(signal.ITIMER_REAL, within_s, REPEATED_S)

    def leave(self, error: ClusterLost) -> None:
        """End the search immediately, without waiting for its trials, because Ray is gone. Called by another thread.

        Args:
            error: Error to raise when the search has ended, unless a person has ended it.
        """
        shutdown = self._state.shutdown
        self._state.announce(str(error))
        shutdown.cluster_is_lost(error)
        if self._listens:
            _interrupt_now()

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Handle signals inside a ``with`` block. Only the main thread receives them; in any other thread there is no
        deadline either."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        with _handling(self._on_signal):
            self._listens = True
            try:
                if not self._state.shutdown.has_cluster:  # lost before these handlers existed
                    _interrupt_now()
                yield
            except BaseException:  # LeaveNow may come out of Ray's own code as another error
                if self._state.shutdown.status is None:
                    raise
            finally:
                self._listens = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._listens:
            return
        if self._state.shutdown.status is not None:
            if number != signal.SIGHUP:  # both a shell and the kernel tell of a terminal's end
                _leave_when_safe(number, frame)
            return
        self.begin_shutdown("interrupted", "; Ctrl-C again leaves at once")


@contextlib.contextmanager
def _handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle the signals in the main thread; other threads receive none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # SIGUSR1 is how Slurm and SGE announce a time limit, SIGHUP the end of a terminal, which nohup lets be ignored.
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM]
    numbers += [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN else []

    def handle(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _print_nowhere()
        handler(number, frame)

    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _print_nowhere() -> None:
    """Discard what is printed from now on to a terminal that has ended: printing there fails."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError), Path(os.devnull).open("wb") as nowhere:  # closed
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):
                os.dup2(nowhere.fileno(), descriptor)


def _leave_when_safe(_: int, frame: FrameType | None) -> None:
    """Raise ``LeaveNow``, after waiting a limited time until the exception would leave no lock held."""
    if _is_unsafe(frame):
        _Waiting.since = _Waiting.since or time.monotonic()
        if time.monotonic() < _Waiting.since + SAFE_WITHIN_S:
            signal.setitimer(signal.ITIMER_REAL, SOON_S, signal.getitimer(signal.ITIMER_REAL)[1])
            return
    _Waiting.since = None
    raise LeaveNow


class _Waiting:
    since: float | None = None
    """Monotonic time of the first signal that was not acted on."""


def _is_unsafe(frame: FrameType | None) -> bool:
    """Whether the main thread holds a lock that an exception would not release."""
    if frame is not None and (_module(frame) in _IMPORTING or frame.f_code.co_name in _LOCKING):
        return True
    while frame is not None:
        if (_module(frame), frame.f_code.co_name) in _UNSAFE:
            return True
        frame = frame.f_back
    return False


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _interrupt_now() -> None:
    """Raise ``LeaveNow`` in the main thread repeatedly until it has left."""
    signal.setitimer(signal.ITIMER_REAL, 0.01, REPEATED_S)
