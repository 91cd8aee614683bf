"""Ctrl-C and SIGTERM on the driver: trials save their state and stop; a second signal leaves at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

from sweeps.driver.shutdown import EarlyEnd
from sweeps.driver.state import SweepState
from sweeps.errors import ClusterLost

STOP_WITHIN_S = 6.0
"""Maximum seconds for trials to save their state, when the whole sweep ends."""
REPEATED_S = 1.0
"""Seconds until a main thread that has not left is interrupted again."""


class LeaveNow(KeyboardInterrupt):
    """Raised in the main thread by a signal. Ray lets only an interrupt from the keyboard end a call of its own."""


class ShutdownSignals:
    """Begins the sweep's shutdown on a signal, with a deadline after which the main thread leaves. Trials that have not
    stopped by then, since they may still be starting, are killed when the cluster is disconnected."""

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
        """End the search at once and without its trials, since Ray is gone. Another thread calls this.

        Args:
            error: Raised when the search has ended, unless a person has ended it.
        """
        shutdown = self._state.shutdown
        self._state.announce(str(error))
        shutdown.cluster_is_lost(error)
        if self._listens:
            _interrupt_now()

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Handle signals for a while. They reach the main thread alone: on another one there is no deadline either."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
        before = {number: signal.signal(number, self._on_signal) for number in numbers}
        self._listens = True
        try:
            if not self._state.shutdown.has_cluster:  # lost before anybody listened
                _interrupt_now()
            yield
        except BaseException:  # LeaveNow may come out of Ray's own code as another error
            if self._state.shutdown.status is None:
                raise
        finally:
            self._listens = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, *_: object) -> None:
        if not self._listens:
            return
        if self._state.shutdown.status is not None:
            raise LeaveNow
        self.begin_shutdown("interrupted", "; Ctrl-C again leaves at once")


def _interrupt_now() -> None:
    """Raise ``LeaveNow`` in the main thread, again and again until it has left."""
    signal.setitimer(signal.ITIMER_REAL, 0.01, REPEATED_S)
