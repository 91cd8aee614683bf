"""How often one may ask, by the library ``limits``: windows of a minute, in this process's memory."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import HTTPException
from limits import RateLimitItem, RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from sweeps.config.access import Access

BUSY_RETRY_S = 5


class RateLimits:
    """Counts requests by who makes them."""

    def __init__(self, access: Access) -> None:
        self._counter = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._requests = RateLimitItemPerMinute(access.requests_per_minute, namespace="requests")
        self._changes = RateLimitItemPerMinute(access.changes_per_minute, namespace="changes")
        self._refusals = RateLimitItemPerMinute(access.refusals_per_minute, namespace="refusals")
        self._expensive = threading.BoundedSemaphore(access.expensive_at_once)

    def count_request(self, who: str, *, changes: bool) -> None:
        """
        Args:
            who: A token's number, or an address.
            changes: Whether it changes something.

        Raises:
            HTTPException: 429, when there were too many.
        """
        self._count(self._requests, who)
        if changes:
            self._count(self._changes, who)

    def count_refusal(self, address: str) -> None:
        """One without a good token.

        Raises:
            HTTPException: 429, when there were too many.
        """
        self._count(self._refusals, address)

    def check_refusals(self, address: str) -> None:
        """
        Raises:
            HTTPException: 429, when there were too many refusals; nothing is counted.
        """
        if not self._counter.test(self._refusals, address):
            raise self._too_many(self._refusals, address)

    @contextmanager
    def expensive(self) -> Iterator[None]:
        """Something of which only a few are made at once.

        Raises:
            HTTPException: 429, while there are as many.
        """
        if not self._expensive.acquire(blocking=False):
            raise HTTPException(
                429,
                "as many reports and comparisons are being made as may be at once; come again",
                {"Retry-After": str(BUSY_RETRY_S)},
            )
        try:
            yield
        finally:
            self._expensive.release()

    def _count(self, limit: RateLimitItem, who: str) -> None:
        if not self._counter.hit(limit, who):
            raise self._too_many(limit, who)

    def _too_many(self, limit: RateLimitItem, who: str) -> HTTPException:
        wait = max(1, math.ceil(self._counter.get_window_stats(limit, who).reset_time - time.time()))
        return HTTPException(429, f"at most {limit.amount} {limit.namespace} a minute", {"Retry-After": str(wait)})
