"""A thread that calls a function periodically; the base of the service's background parts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sweeps.service.clock import Clock
from sweeps.service.database.storage_errors import is_unavailable, outage
from sweeps.tracking.client import reaching_within

MLFLOW_S = 3.0
"""Maximum seconds that a background thread waits for an answer of MLflow; short, since it delays the end of the
service."""

logger = logging.getLogger(__name__)


class Poller:
    """Calls a function periodically, and immediately when woken. Exceptions are logged; polling continues."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        poll: Callable[[], float | None],
        every_s: float,
        *,
        stop_within_s: float | None = None,
    ) -> None:
        """Make a poller. ``poll`` may return the seconds until the next call; otherwise, and after a failed call, they
        are ``every_s``. ``stop`` waits for the current call for at most ``stop_within_s``, by default without a
        limit."""
        self._name, self._clock, self._call, self._every_s = name, clock, poll, every_s
        self._stop_within_s = stop_within_s
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._logged_error = ""
        """The last error that was logged; the same one is logged again only after a successful call."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_stopping(self) -> bool:
        """Whether ``stop`` was called; a long call may check this and return early."""
        return self._stopping.is_set()

    def start(self) -> None:
        self._thread.start()

    def wake(self, *_: object) -> None:
        """Call the function now; arguments are ignored, so that this can be a callback."""
        self._wake.set()

    def request_stop(self) -> None:
        """Stop polling, without waiting for the current call."""
        self._stopping.set()
        self._wake.set()

    def stop(self) -> None:
        """Stop polling, and wait for the current call."""
        self.request_stop()
        self._thread.join(self._stop_within_s)

    def _run(self) -> None:
        while not self.is_stopping:
            seconds: float | None = None
            try:
                with reaching_within(MLFLOW_S):
                    seconds = self._call()
                self._logged_error = ""
            except Exception as error:  # noqa: BLE001 - it is logged, and the call repeated
                self._log(error)
            self._clock.wait(self._wake, self._every_s if seconds is None else seconds)
            self._wake.clear()  # before the next call, which does what the thread was woken for

    def _log(self, error: Exception) -> None:
        if is_unavailable(error):
            outage.report(error, f"the {self._name}")
        elif repr(error) != self._logged_error:
            self._logged_error = repr(error)
            logger.error(
                "the %s failed and tries again every %.1f s (logged once)",
                self._name,
                self._every_s,
                exc_info=error,
            )
