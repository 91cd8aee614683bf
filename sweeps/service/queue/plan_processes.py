"""Child processes that compose and check requests. A child that takes too long is killed; neither the event loop nor
the interpreter of the service is blocked by it.

Children are forked from ``multiprocessing``'s forkserver, which has imported the modules of a plan and starts no Python
thread, so that a plan starts within milliseconds.
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
from sweeps.service.auth.config_policy import SweepExists

PRELOADED = [
    "sweeps.service.queue.plans",
    "sweeps.compose.expressions",
    "mlflow",
    "sweeps.service.queue.frozen_imports",  # last
]
"""Modules that the forkserver imports."""
MAX_WAITING, MAX_WAITING_PER_USER = 16, 6
"""Maximum number of waiting plans, in total and per user; each holds one of the 40 threads that answer requests."""
BUSY_RETRY_S = 5
NICENESS = 5
"""Niceness of the children, which lets the service use the CPU first."""

T = TypeVar("T")
_EXISTS, _DONE, _FAILED = "exists", "done", "failed"

logger = logging.getLogger(__name__)


class PlanFailed(RuntimeError):
    """Unexpected error in a child process; the text is its traceback."""


class Planner:
    """Runs plans in child processes, a few at a time; one user never occupies all slots."""

    def __init__(self, at_once: int, within_s: float) -> None:
        """Make at most ``at_once`` plans concurrently. A plan may take ``within_s``, and wait as long for a slot."""
        self._at_once, self._per_user, self._within_s = at_once, max(1, at_once - 1), within_s
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._changed = threading.Condition()
        self._running: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._processes: set[Any] = set()
        self._closed = False

    def start(self) -> None:
        """Start the forkserver, so that the first plan does not wait for it."""
        threading.Thread(target=ensure_running, name="planner", daemon=True).start()

    def stop(self) -> None:
        """Kill the running plans and refuse new ones."""
        with self._changed:
            self._closed = True
            for process in self._processes:
                _end(process)
            self._changed.notify_all()

    def make(self, user: str, work: Callable[..., T], sweep_exists: SweepExists, *arguments: Any) -> T:
        """Return the result of ``work(sweep_exists, *arguments)``, run in a child process for a user; its calls of
        ``sweep_exists`` are answered by this process.

        Raises:
            TimeLimitExceeded: The plan took too long and was killed.
            SweepsError: Raised by ``work``.
            HTTPException: Status 429, if too many plans wait.
        """
        with self._slot(user):
            return self._run(work, sweep_exists, arguments)

    @contextlib.contextmanager
    def _slot(self, user: str) -> Iterator[None]:
        with self._changed:
            if self._waiting.total() >= MAX_WAITING or self._waiting[user] >= MAX_WAITING_PER_USER:
                raise _too_many()
            self._waiting[user] += 1
            try:
                has_slot = self._changed.wait_for(lambda: self._closed or self._is_free(user), self._within_s)
            finally:
                self._waiting -= Counter([user])
            if not has_slot or self._closed:
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

    def _run(self, work: Callable[..., T], sweep_exists: SweepExists, arguments: tuple[Any, ...]) -> T:
        ours, theirs = self._context.Pipe()
        surroundings = (str(Path.cwd()), dict(os.environ), self._within_s)
        process = self._context.Process(target=_work, args=(theirs, surroundings, work, arguments), daemon=True)
        with ours:
            with theirs:
                process.start()
            with self._changed:
                self._processes.add(process)
                if self._closed:  # the service was stopped while this process started
                    _end(process)
            try:
                answer: T = self._answer(ours, sweep_exists)
                return answer
            finally:
                _end(process)
                process.join()
                with self._changed:
                    self._processes.discard(process)

    def _answer(self, connection: Connection[Any, Any], sweep_exists: SweepExists) -> Any:
        deadline = time.monotonic() + self._within_s
        while True:
            if not connection.poll(max(0.0, deadline - time.monotonic())):
                raise TimeLimitExceeded(
                    f"this takes longer than the {self._within_s:g} s that the service allows (access.plan_within_s); "
                    "use fewer paths and choices in the space, and simpler constraints"
                )
            try:
                kind, content = connection.recv()
            except (EOFError, OSError):
                raise PlanFailed("the process that made the plan has died, or the service is stopping") from None
            if kind == _EXISTS:
                connection.send(sweep_exists(content))
            elif kind == _DONE:
                return content
            else:
                raise content


def _too_many() -> HTTPException:
    text = "too many plans are being made or are waiting; try again later"
    return HTTPException(429, text, {"Retry-After": str(BUSY_RETRY_S)})


def _end(process: Any) -> None:
    """Kill a process and its children."""
    with contextlib.suppress(OSError, ValueError):
        if process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()  # it may not have its own process group yet


def _work(
    connection: Connection[Any, Any],
    surroundings: tuple[str, Mapping[str, str], float],
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    """Entry point of the child process."""
    folder, environment, within_s = surroundings
    os.setsid()
    os.nice(NICENESS)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(within_s) + 5)  # in case the service dies before it can kill this process

    def sweep_exists(name: str) -> bool:
        connection.send((_EXISTS, name))
        return bool(connection.recv())

    try:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        connection.send((_DONE, work(sweep_exists, *arguments)))
    except SweepsError as error:
        connection.send((_FAILED, error))
    except BaseException:  # noqa: BLE001 - the service reports it
        connection.send((_FAILED, PlanFailed(traceback.format_exc())))
