"""A thread that looks after something, again and again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sweeps.service.clock import Clock
from sweeps.service.database.storage_errors import is_unavailable, trouble

logger = logging.getLogger(__name__)


class Looking:
    """Looks after a while, and at once when it is woken. A look that fails is said, and followed by another."""

    def __init__(self, name: str, clock: Clock, look: Callable[[], float | None], every_s: float) -> None:
        """
        Args:
            name: Of the thread, and of what it looks after.
            clock: What time it is.
            look: Does what is to be done; returns the seconds until the next look, where those are not ``every_s``.
            every_s: Seconds between two looks, and after one that failed.
        """
        self._name, self._clock, self._look, self._every_s = name, clock, look, every_s
        self._wake, self._ending = threading.Event(), threading.Event()
        self._said = ""
        """The last error that was said; the same is said again after a good look only."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def ends(self) -> bool:
        """Whether ``stop`` was called: a look that takes long may look at it."""
        return self._ending.is_set()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Look now."""
        self._wake.set()

    def stop(self, within_s: float | None = None) -> None:
        """Look no more, and wait for the look that is going on, if not longer than so many seconds."""
        self._ending.set()
        self._wake.set()
        self._thread.join(within_s)

    def _run(self) -> None:
        while not self.ends:
            seconds: float | None = None
            try:
                seconds = self._look()
                self._said = ""
            except Exception as error:  # noqa: BLE001 - it is said, and a database that is away is asked again
                self._say(error)
            self._clock.wait(self._wake, self._every_s if seconds is None else seconds)
            self._wake.clear()  # before the next look, which sees what it was woken for

    def _say(self, error: Exception) -> None:
        if is_unavailable(error):
            trouble.met(error, f"the {self._name}")
        elif repr(error) != self._said:
            self._said = repr(error)
            logger.error(
                "the %s had trouble, and looks again every %.1f s (said once)",
                self._name,
                self._every_s,
                exc_info=error,
            )
