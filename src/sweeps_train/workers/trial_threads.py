"""Records which trial of a process has started a thread, so that a thread which outlives its trial does not report for
the next one."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

_TRIAL: ContextVar[object | None] = ContextVar("trial", default=None)
_RUNNING = threading.local()
"""The trial that a thread is running: it counts more than the context, which may be an earlier trial's."""
_STARTED_IN: WeakKeyDictionary[threading.Thread, object] = WeakKeyDictionary()


@contextlib.contextmanager
def own_threads() -> Iterator[None]:
    """Treat the threads of the ``with`` block as one trial's: this thread, those that it starts, and so on."""
    _record_starts()
    _RUNNING.trial = object()
    token = _TRIAL.set(_RUNNING.trial)
    try:
        yield
    finally:
        _TRIAL.reset(token)
        _RUNNING.trial = None


def trial_of_caller() -> object | None:
    """Return the trial whose code is calling, by identity; None if it is unknown.

    A task of asyncio, or a call through ``contextvars.copy_context().run``, belongs to the trial that has made it, in
    whatever thread it runs.
    """
    trial = getattr(_RUNNING, "trial", None) or _TRIAL.get()
    return _STARTED_IN.get(threading.current_thread()) if trial is None else trial


@functools.cache
def _record_starts() -> None:
    """Record from now on who starts a thread. It stays so after a trial, whose threads may start others later."""
    threads: Any = threading.Thread
    start = threads.start

    def recorded(thread: threading.Thread) -> None:
        if (trial := trial_of_caller()) is not None:
            _STARTED_IN[thread] = trial
        start(thread)

    threads.start = recorded
