"""Processes that make plans. What others ask for is composed and checked in a process of its own, which is ended when
it takes too long: neither the service's event loop nor its interpreter waits for it.

The processes are forked from a server of theirs (``multiprocessing``'s forkserver), which has imported what plans need
and starts no thread of Python's: a plan starts within milliseconds.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any, TypeVar

from fastapi import HTTPException

from sweeps.errors import SweepsError, TimeLimitExceeded

PRELOADED = ["sweeps.service.queue.plans", "sweeps.compose.expressions", "mlflow"]
"""Modules that every plan needs."""
MOST_WAITING, MOST_WAITING_PER_USER = 16, 6
"""Plans that wait for their turn; each holds one of the 40 threads that answer requests."""
BUSY_RETRY_S = 5
NICENESS = 5
"""Plans give way to the service that waits for them."""

SweepExists = Callable[[str], bool]
"""Whether a sweep exists for whoever asks, by its name."""
T = TypeVar("T")
_ASKS, _DONE, _REFUSED, _BROKE = "asks", "done", "refused", "broke"

logger = logging.getLogger(__name__)


class PlanFailed(RuntimeError):
    """A mistake of ours in a process that made a plan; the text is its traceback."""


class Planner:
    """Makes plans, a few at a time, and one user's never in all the places."""

    def __init__(self, at_once: int, within_s: float) -> None:
        """
        Args:
            at_once: Plans at the same time.
            within_s: Seconds that each may take, and may wait for its turn.
        """
        self._at_once, self._per_user, self._within_s = at_once, max(1, at_once - 1), within_s
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._changed = threading.Condition()
        self._running: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._processes: set[Any] = set()
        self._closed = False

    def start(self) -> None:
        """Start the server of processes, so that the first plan does not wait for it."""
        threading.Thread(target=ensure_running, name="planner", daemon=True).start()

    def stop(self) -> None:
        """End all plans that are being made; none is made any more."""
        with self._changed:
            self._closed = True
            for process in self._processes:
                _end(process)
            self._changed.notify_all()

    def make(self, user: str, work: Callable[..., T], sees: SweepExists, *arguments: Any) -> T:
        """Result of ``work(sees, *arguments)``, run in a process of its own.

        Args:
            user: Who asks.
            work: A function that pickles; it may ask ``sees``, which is answered here.
            sees: Which sweeps exist for the user.
            arguments: Of the function.

        Raises:
            TimeLimitExceeded: It has not ended in time; it is ended.
            SweepsError: As ``work`` does.
            HTTPException: 429: too many plans wait.
        """
        with self._place(user):
            return self._made(work, sees, arguments)

    @contextlib.contextmanager
    def _place(self, user: str) -> Iterator[None]:
        with self._changed:
            if self._waiting.total() >= MOST_WAITING or self._waiting[user] >= MOST_WAITING_PER_USER:
                raise _too_many()
            self._waiting[user] += 1
            try:
                has_place = self._changed.wait_for(lambda: self._closed or self._is_free(user), self._within_s)
            finally:
                self._waiting -= Counter([user])
            if not has_place or self._closed:
                raise _too_many()
            self._running[user] += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= Counter([user])
                self._changed.notify_all()

    def _is_free(self, user: str) -> bool:
        return self._running.total() < self._at_once and self._running[user] < self._per_user

    def _made(self, work: Callable[..., T], sees: SweepExists, arguments: tuple[Any, ...]) -> T:
        ours, theirs = self._context.Pipe()
        place = (str(Path.cwd()), dict(os.environ), self._within_s)
        process = self._context.Process(target=_work, args=(theirs, place, work, arguments), daemon=True)
        with ours:
            with theirs:
                process.start()
            with self._changed:
                self._processes.add(process)
                if self._closed:  # since there was a place
                    _end(process)
            try:
                answer: T = self._answer(ours, sees)
                return answer
            finally:
                _end(process)
                process.join()
                with self._changed:
                    self._processes.discard(process)

    def _answer(self, connection: Connection[Any, Any], sees: SweepExists) -> Any:
        deadline = time.monotonic() + self._within_s
        while True:
            if not connection.poll(max(0.0, deadline - time.monotonic())):
                raise TimeLimitExceeded(
                    f"this takes longer than the {self._within_s:g} s that the service allows (access.plan_within_s); "
                    "ask for less: fewer paths and choices in the space, simpler constraints"
                )
            try:
                kind, content = connection.recv()
            except (EOFError, OSError):
                raise PlanFailed("the process that made a plan has died, or the service ends") from None
            if kind == _ASKS:
                connection.send(sees(content))
            elif kind == _DONE:
                return content
            elif kind == _REFUSED:
                raise content
            else:
                raise PlanFailed(content)


def _too_many() -> HTTPException:
    text = "as many plans are being made, or wait, as may at once; come again"
    return HTTPException(429, text, {"Retry-After": str(BUSY_RETRY_S)})


def _end(process: Any) -> None:
    """Kill a process with all that it has started."""
    with contextlib.suppress(OSError, ValueError):
        if process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()  # it may not have begun a group of its own yet


def _work(
    connection: Connection[Any, Any],
    place: tuple[str, Mapping[str, str], float],
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    """Entry point of the process."""
    folder, environment, within_s = place
    os.setsid()
    os.nice(NICENESS)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(within_s) + 5)  # should the service die, and not end it

    def sees(name: str) -> bool:
        connection.send((_ASKS, name))
        return bool(connection.recv())

    try:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        connection.send((_DONE, work(sees, *arguments)))
    except SweepsError as error:
        connection.send((_REFUSED, error))
    except BaseException:  # noqa: BLE001 - the service tells of it
        connection.send((_BROKE, traceback.format_exc()))
