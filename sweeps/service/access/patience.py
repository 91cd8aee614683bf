"""How long a connection may take to say what it wants. Uvicorn itself waits for ever for the rest of a request's head,
so that a few slow clients could hold all the connections that there are."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_WITHIN_S = 10.0
"""For the first line and the headers; bodies have ``access.body_timeout_s``."""


class ImpatientProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, to those who are not slow on purpose."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """A client has come."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """It has said something, which may be a part of a head only."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait()
        else:
            self._wait_no_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone."""
        self._wait_no_more()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_WITHIN_S, self.transport.close)

    def _wait_no_more(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
