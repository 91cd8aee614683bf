"""An actor without Ray: an object whose asynchronous methods run in a thread's event loop, and what Ray calls on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any


class LocalActor:
    """A handle of the object: ``handle.method.remote(...)``."""

    def __init__(self, owned: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._owned, self._loop = owned, loop

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=partial(self._call, name))

    def _call(self, name: str, *arguments: Any, **named: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(getattr(self._owned, name)(*arguments, **named), self._loop)


@contextmanager
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A running event loop in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result(20)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _get(calls: Any) -> Any:
    return [each.result(20) for each in calls] if isinstance(calls, list) else calls.result(20)


def _wait(calls: Sequence[Future[Any]], *, num_returns: int = 1, timeout: float | None = None) -> tuple[list[Any], ...]:
    done = wait(calls, timeout, FIRST_COMPLETED).done if num_returns == 1 else wait(calls, timeout).done
    return [each for each in calls if each in done], [each for each in calls if each not in done]


LOCAL_RAY = SimpleNamespace(get=_get, wait=_wait)
"""The part of ``ray`` with which modules call such actors."""
