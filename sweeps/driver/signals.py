"""How a sweep ends before its time, on its driver: by a signal, or as asked from another terminal."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

from sweeps.driver.state import Monitor, Stopping

STOP_WITHIN_S = 6.0
"""Seconds that trials have to save their state, when the whole sweep ends."""


class LeaveNow(BaseException):
    """Raised in the main thread by a signal; like KeyboardInterrupt, it must pass through ``except Exception``."""


class Ending:
    """Trials save their state and stop at their next boundary; who is not done within the deadline
    (it may still be starting) is killed with the connection to the cluster."""

    def __init__(self, monitor: Monitor):
        self._monitor = monitor
        self._listens = False

    def begin(self, how: Stopping, hint: str = "") -> None:
        """A person wants the end of the sweep."""
        monitor = self._monitor
        if monitor.stopping:
            return
        monitor.stopping = how
        monitor.view.event(monitor, f"stopping: trials save their state and end{hint}")
        monitor.broker.stop_all.remote()
        if self._listens:
            signal.setitimer(signal.ITIMER_REAL, STOP_WITHIN_S)

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Ctrl-C, or SIGTERM, begins it; when a person presses again, all leave at once. Signals reach the main thread
        alone: elsewhere there is no deadline either."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
        before = {number: signal.signal(number, self._on_signal) for number in numbers}
        self._listens = True
        try:
            yield
        except BaseException:  # raised within Ray's own code, LeaveNow comes out as something else
            if not self._monitor.stopping:
                raise
        finally:
            self._listens = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, *_: object) -> None:
        if not self._listens:
            return
        if self._monitor.stopping:
            raise LeaveNow
        self.begin("interrupted", "; once more to leave at once")
