"""Retries of calls to MLflow until they succeed, with one warning at the first failure and one message at the
recovery."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from sweeps.texts.uri_passwords import redact_uri
from sweeps.tracking.client import CONNECT_WITHIN_S, first_cause, request_limits

T = TypeVar("T")
logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 5.0
LONGEST_ANSWER_S = 80.0
"""Maximum seconds to wait for an answer when a call with a shorter timeout is repeated: the server may be slow."""
REFUSED_AFTER_S = 300.0
"""Seconds after which a failing call counts as refused if other calls succeed."""
REFUSALS = {
    "INVALID_PARAMETER_VALUE",
    "INVALID_STATE",
    "PERMISSION_DENIED",
    "RESOURCE_ALREADY_EXISTS",
    "RESOURCE_DOES_NOT_EXIST",
}
"""MLflow's error codes for calls that would fail again."""
REFUSALS_OF_ALL_CALLS = {"PERMISSION_DENIED", "RESOURCE_DOES_NOT_EXIST"}
"""Codes among ``REFUSALS`` that a store returns for every call while the user's access has expired, or while it is
started with another database."""


class Refused(Exception):
    """Raised when MLflow rejects a call and would reject it again."""


class GaveUp(Exception):
    """Raised when the time limit for calls has passed."""

    def __str__(self) -> str:
        return "no call has succeeded within tracking.patience_s"


class Superseded(Exception):
    """Raised by a call that is no longer needed; it does not show whether MLflow answers."""


class Retrier:
    """Repeats calls of one kind until they succeed. Each kind of calls needs its own instance, because one kind may
    fail while another succeeds, as on a full disk."""

    def __init__(
        self,
        uri: str,
        doing: str,
        probe: Callable[[], object] | None = None,
        own_run: Callable[[], object] = lambda: None,
        connect_s: float = CONNECT_WITHIN_S,
    ) -> None:
        """
        Args:
            uri: Tracking URI, for messages.
            doing: Purpose of the calls, for messages: ``writing to MLflow``.
            probe: A cheap call. If the probe succeeds while another call has failed for minutes, the other call counts
                as refused; without a probe, calls are repeated forever.
            own_run: A cheap call for the sweep's own run. As long as the store refuses it, too, other calls are
                repeated instead of refused.
            connect_s: As for ``request_limits``.
        """
        self._uri = redact_uri(uri)
        self._doing = doing
        self._remote = uri.startswith("http")
        self._probe, self._own_run = probe, own_run
        self._connect_s = connect_s
        self._lock = threading.Lock()
        self._failing_since: float | None = None
        self._patience_s = self._deadline = float("inf")
        self._last_success = time.monotonic()
        self._long_s = 0.0
        """Seconds that the current attempt of a call may take beyond the limits."""

    def give_up_after(self, silence_s: float, total_s: float = float("inf")) -> None:
        """Set the time limits from now on, including for a call in progress; calls beyond them raise ``GaveUp``.

        Args:
            silence_s: Maximum seconds without a successful call.
            total_s: Seconds in any case.
        """
        self._last_success = time.monotonic()
        self._patience_s, self._deadline = silence_s, self._last_success + total_s

    def extend(self, seconds: float) -> None:
        """Do not count time spent waiting for other work, in which no call could succeed."""
        self._last_success = min(self._last_success + seconds, time.monotonic())

    def time_left(self) -> float:
        """Return the seconds until calls raise ``GaveUp``, if none succeeds."""
        return min(self._last_success + self._patience_s + self._long_s, self._deadline) - time.monotonic()

    def call(self, function: Callable[[], T], timeout_s: float = 20, long_s: float = 0.0) -> T:
        """Call a function until it succeeds, and return its result.

        Args:
            function: Calls MLflow; repeating it must do no harm.
            timeout_s: Maximum seconds to wait for the answer to one request, at first.
            long_s: Seconds that an attempt may take beyond these and the time limit, until it fails: those of a
                transfer. With it, only one thread may call.

        Raises:
            Refused: The call would fail again.
            GaveUp: The time limit has passed.
            Superseded: Raised by the function.
        """
        started, pause, handled = time.monotonic(), FIRST_PAUSE_S, sys.exc_info()[1]
        while True:
            left = self.time_left()
            if left <= 0:
                raise GaveUp
            self._long_s, began = long_s, time.monotonic()
            try:
                with request_limits(max(1.0, min(timeout_s, left)) + long_s, connect_s=self._connect_s):
                    result = function()
            except (Refused, GaveUp, Superseded):
                raise
            except Exception as error:  # of MLflow, the database, requests or boto
                if self._refusal(error) is not None and not self._refuses_all(error):
                    raise Refused(first_cause(error, handled)) from error
                self._warn_failing(first_cause(error, handled))
                if time.monotonic() - started > REFUSED_AFTER_S and self._others_succeed():
                    raise Refused(first_cause(error, handled)) from error
            else:
                self._succeeded(began)
                return result
            finally:
                self._long_s = 0.0
            time.sleep(max(0.0, min(pause, self.time_left())))
            pause = min(2 * pause, LONGEST_PAUSE_S)
            timeout_s = max(timeout_s, min(2 * timeout_s, LONGEST_ANSWER_S))

    def create_once(self, find: Callable[[], T | None], create: Callable[[], T], *, may_exist: bool = False) -> T:
        """Create an object exactly once, even if the server's answer is lost.

        Args:
            find: Returns the object if it exists.
            create: Creates and returns the object.
            may_exist: Whether to look for the object before the first attempt as well.

        Raises:
            Refused, GaveUp: See ``call``.
        """

        def find_or_create() -> T:
            nonlocal may_exist
            found = find() if may_exist else None
            may_exist = True
            return create() if found is None else found

        return self.call(find_or_create)

    def _refusal(self, error: Exception) -> str | None:
        """Return MLflow's error code if it has refused a call; None after any other failure."""
        from mlflow.exceptions import MlflowException, RestException

        # Over HTTP only MLflow's own answers count: a proxy before a server that restarts answers 404, too.
        by_mlflow = isinstance(error, RestException if self._remote else MlflowException)
        code: str | None = getattr(error, "error_code", None)
        return code if by_mlflow and code in REFUSALS else None

    def _refuses_all(self, error: Exception) -> bool:
        """Whether the store also refuses calls for the sweep's own run, or has stopped answering."""
        if self._refusal(error) not in REFUSALS_OF_ALL_CALLS:
            return False
        try:
            with request_limits(5):
                self._own_run()
        except Exception as own:  # noqa: BLE001 - of MLflow, the database or requests
            return self._refusal(own) in {None, *REFUSALS_OF_ALL_CALLS}
        return False

    def _others_succeed(self) -> bool:
        if self._probe is None:
            return False
        try:
            with request_limits(5):
                self._probe()
        except Exception:  # noqa: BLE001 - the server does not answer, for whatever reason
            return False
        return True

    def _warn_failing(self, cause: str) -> None:
        with self._lock:
            if self._failing_since is not None:
                return
            self._failing_since = time.monotonic()
        logger.warning(
            "%s at %s fails (%s); training continues, and the call is repeated until it succeeds",
            self._doing,
            self._uri,
            cause,
        )

    def _succeeded(self, began: float) -> None:
        self._last_success = time.monotonic()
        with self._lock:
            since = self._failing_since
            if since is None or began < since:  # the answer to a request from before says nothing of the present
                return
            self._failing_since = None
        logger.warning("%s at %s works again, after %.0f s", self._doing, self._uri, time.monotonic() - since)
