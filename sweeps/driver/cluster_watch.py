"""Watchdog for Ray itself: the driver exits when Ray is gone, because Ray would abort the process a minute later."""

from __future__ import annotations

import socket
import threading
import time

from sweeps.driver.early_end import SIGNAL_FIRST_S, Shutdown
from sweeps.driver.signals import ShutdownSignals
from sweeps.driver.sweep_state import SweepState
from sweeps.errors import ClusterLost
from sweeps.runtime.cluster_processes import OwnCluster

LOOK_EVERY_S = 0.5
ANSWERS_WITHIN_S = 2.0
GONE_AFTER_S = 40.0
"""Seconds without an answer after which a joined cluster counts as gone: long enough for a restart, and less than the
60 s after which Ray ends this process."""
INTERRUPTED_WITHIN_S = 10.0
"""Maximum seconds until the main thread is interrupted after the cluster is gone."""


class ClusterGuard:
    """Keeps the main thread from asking Ray for something while Ray goes away, since such a call waits for a minute and
    then ends the process: the thread waits here instead, until ``ClusterWatch`` interrupts it."""

    def __init__(self, shutdown: Shutdown):
        self._shutdown, self._own = shutdown, OwnCluster()

    def wait_if_gone(self) -> None:
        """Wait to be interrupted if Ray is gone."""
        until = time.monotonic() + INTERRUPTED_WITHIN_S
        while self._shutdown.has_cluster and self._own.lost() is not None and time.monotonic() < until:
            time.sleep(LOOK_EVERY_S)

    def releases(self) -> bool:
        """Return whether Tune must ask Ray to release an actor's resources. Not at the end of the sweep: Ray then
        releases all when this process disconnects, and a signal may have ended Ray's processes."""
        import ray

        is_there = self._shutdown.has_cluster and self._own.lost() is None
        return is_there and self._shutdown.status is None and ray.is_initialized()


class ClusterWatch:
    """A thread that checks Ray's processes, or the address of a cluster that was joined."""

    def __init__(self, state: SweepState, signals: ShutdownSignals):
        import ray

        self._state, self._signals = state, signals
        self._own, self._address = OwnCluster(), ray.get_runtime_context().gcs_address
        self._answered = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cluster-watch", daemon=True)

    def __enter__(self) -> ClusterWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(LOOK_EVERY_S):
            if (reason := self._is_gone()) is not None:
                self._done.wait(SIGNAL_FIRST_S)
                self._signals.leave(ClusterLost(self._state.sweep, reason))
                return

    def _is_gone(self) -> str | None:
        """Return the reason why the cluster is gone; None while it runs."""
        if (reason := self._own.lost()) is not None:
            return reason
        host, _, port = self._address.rpartition(":")  # an IPv6 host is in brackets
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWERS_WITHIN_S).close()
            self._answered = time.monotonic()
        except ConnectionRefusedError:
            if not self._own.is_empty:  # nobody starts it again
                return f"{self._address} refuses connections"
        except OSError:  # it is busy, or the network is down
            pass
        silent_s = time.monotonic() - self._answered
        lost = self._own.is_empty and silent_s > GONE_AFTER_S
        return f"{self._address} has not answered for {silent_s:.0f} s" if lost else None
