"""Rate limits of requests, by the library ``limits``: one-minute windows in this process's memory."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from fastapi import HTTPException
from limits import RateLimitItem, RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from sweeps.config.access import Access

BUSY_RETRY_S = 5


@contextmanager
def turn(semaphore: threading.Semaphore, wait_s: float, refusal: str) -> Iterator[None]:
    """Wait at most some seconds until fewer are at work than a semaphore allows; raise ``HTTPException`` with status
    429 if they still are too many."""
    if not semaphore.acquire(timeout=wait_s):
        raise HTTPException(429, refusal, {"Retry-After": str(BUSY_RETRY_S)})
    try:
        yield
    finally:
        semaphore.release()


class RateLimits:
    """Counts requests by token or address. Where there were too many, each method raises ``HTTPException`` with status
    429."""

    def __init__(self, access: Access) -> None:
        self._counter = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._requests = RateLimitItemPerMinute(access.requests_per_minute, namespace="requests")
        self._changes = RateLimitItemPerMinute(access.changes_per_minute, namespace="changes")
        self._refusals = RateLimitItemPerMinute(access.refusals_per_minute, namespace="refusals")
        self._expensive = threading.BoundedSemaphore(access.expensive_at_once)

    def count_request(self, client: str, *, changes: bool) -> None:
        """Count a request of a client, identified by its token or its address."""
        self._count(self._requests, client)
        if changes:
            self._count(self._changes, client)

    def count_refusal(self, address: str) -> None:
        """Count a request without a valid token."""
        self._count(self._refusals, address)

    def check_refusals(self, address: str) -> None:
        """Check the refused requests of an address without counting one."""
        if not self._counter.test(self._refusals, address):
            raise self._too_many(self._refusals, address)

    def expensive(self) -> AbstractContextManager[None]:
        """Run an expensive operation, of which only a few may run at once."""
        return turn(self._expensive, 0.0, "too many reports and comparisons are being made; try again later")

    def _count(self, limit: RateLimitItem, client: str) -> None:
        if not self._counter.hit(limit, client):
            raise self._too_many(limit, client)

    def _too_many(self, limit: RateLimitItem, client: str) -> HTTPException:
        wait = max(1, math.ceil(self._counter.get_window_stats(limit, client).reset_time - time.time()))
        return HTTPException(429, f"at most {limit.amount} {limit.namespace} a minute", {"Retry-After": str(wait)})
