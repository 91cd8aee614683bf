"""The link to MLflow of a recorder's threads: calls are repeated until they succeed, and people are told once when
the link breaks and once when it is back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from sweeps.redact import redact_uri
from sweeps.tracking.client import first_cause, request_limits

T = TypeVar("T")
logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 5.0
POISON_AFTER_S = 300.0
"""A call that has failed for so long while others get through will never succeed."""
REFUSALS = {
    "INVALID_PARAMETER_VALUE",
    "INVALID_STATE",
    "PERMISSION_DENIED",
    "RESOURCE_ALREADY_EXISTS",
    "RESOURCE_DOES_NOT_EXIST",
}
"""MLflow's error codes that a repetition does not change."""


class Refused(Exception):
    """MLflow understood the call and will never accept it."""


class GaveUp(Exception):
    """The time for the last calls is over."""


class Retrier:
    """Repeats calls; see the module."""

    def __init__(self, uri: str, doing: str, probe: Callable[[], object] | None = None) -> None:
        """Each kind of call has its own: one may fail where the other does not, as on a full disk.

        Args:
            uri: Named in messages.
            doing: What the calls do, for messages, such as ``writing to MLflow``.
            probe: A cheap call that succeeds where others do: while it does, one that has failed for minutes is
                refused. Without it, calls are repeated for ever.
        """
        self._uri = redact_uri(uri)
        self._doing = doing
        self._remote = uri.startswith("http")
        self._probe = probe
        self._lock = threading.Lock()
        self._broken_since: float | None = None
        self._patience_s = self._deadline = float("inf")
        self._last_success = time.monotonic()

    def give_up_after(self, silence_s: float, total_s: float = float("inf")) -> None:
        """From now on calls raise ``GaveUp`` when none has succeeded for so long, or after ``total_s`` in any case; one
        under way ends about then."""
        self._last_success = time.monotonic()
        self._patience_s, self._deadline = silence_s, self._last_success + total_s

    def time_left(self) -> float:
        """Seconds until calls are given up, if none succeeds."""
        return min(self._last_success + self._patience_s, self._deadline) - time.monotonic()

    def call(self, function: Callable[[], T], timeout_s: float = 20) -> T:
        """What ``function`` returns, however often it must be called.

        Args:
            function: A call of MLflow that may be repeated without harm.
            timeout_s: How long one request may wait for the server.

        Raises:
            Refused: Repeating is of no use.
            GaveUp: The deadline has passed.
        """
        started, pause = time.monotonic(), FIRST_PAUSE_S
        while True:
            left = self.time_left()
            if left <= 0:
                raise GaveUp
            try:
                with request_limits(max(1.0, min(timeout_s, left))):
                    result = function()
            except GaveUp:
                raise
            except Exception as error:  # MLflow's, the database's, requests', boto's: all are retried
                if self._is_refusal(error):
                    raise Refused(first_cause(error)) from error
                self._broken(error)
                if time.monotonic() - started > POISON_AFTER_S and self._others_get_through():
                    raise Refused(first_cause(error)) from error
            else:
                self._mended()
                return result
            time.sleep(max(0.0, min(pause, self.time_left())))
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def create_once(self, find: Callable[[], T | None], create: Callable[[], T], *, asked: bool = False) -> T:
        """What ``create`` returns, or ``find``: the server may have created it and died before it could say so.

        Args:
            find: Looks for it.
            create: Creates it.
            asked: It may have been asked for before.

        Raises:
            Refused, GaveUp: As ``call``.
        """

        def find_or_create() -> T:
            nonlocal asked
            found = find() if asked else None
            asked = True
            return create() if found is None else found

        return self.call(find_or_create)

    def _is_refusal(self, error: Exception) -> bool:
        from mlflow.exceptions import MlflowException, RestException

        # Over HTTP only what MLflow itself says counts: a proxy in front of a server that restarts says 404 too.
        spoken = isinstance(error, RestException if self._remote else MlflowException)
        return spoken and getattr(error, "error_code", None) in REFUSALS

    def _others_get_through(self) -> bool:
        if self._probe is None:
            return False
        try:
            with request_limits(5):
                self._probe()
        except Exception:  # noqa: BLE001 - whatever it is, the server is not there
            return False
        return True

    def _broken(self, error: Exception) -> None:
        with self._lock:
            if self._broken_since is not None:
                return
            self._broken_since = time.monotonic()
        logger.warning(
            "%s at %s fails (%s); training goes on, and this is tried again until it succeeds",
            self._doing,
            self._uri,
            first_cause(error),
        )

    def _mended(self) -> None:
        self._last_success = time.monotonic()
        with self._lock:
            since, self._broken_since = self._broken_since, None
        if since is not None:
            logger.warning("%s at %s works again, after %.0f s", self._doing, self._uri, time.monotonic() - since)
