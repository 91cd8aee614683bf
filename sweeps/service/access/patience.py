"""How long a connection may take to say what it wants, and how many there may be. Uvicorn itself waits for ever for the
rest of a request's head, so that a few slow clients could hold all the connections that there are."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 21\r\nRetry-After: 5\r\n"
    b"Connection: close\r\n\r\nToo many connections."
)

HEAD_WITHIN_S = 10.0
"""For the first line and the headers; bodies have ``access.body_timeout_s``."""


class ImpatientProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, to those who are not slow on purpose."""

    most, most_per_address = 1000, 250
    """Connections at once."""
    _deadline: asyncio.TimerHandle | None = None
    last_heard = 0.0
    """When something came, by the loop's clock."""
    is_leaving = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """A client has come."""
        super().connection_made(transport)
        self.last_heard = self.loop.time()
        self._wait()
        self._make_room()

    def data_received(self, data: bytes) -> None:
        """It has said something, which may be a part of a head only."""
        self.last_heard = self.loop.time()
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait()
        else:
            self._wait_no_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone."""
        self._wait_no_more()
        super().connection_lost(exc)

    def _make_room(self) -> None:
        """Where there are too many, of this address or of all, the one that has been idle longest is closed; if none is
        idle, this one. So nobody keeps others out by connections alone."""
        others = [each for each in self.connections if isinstance(each, ImpatientProtocol) and each is not self]
        others = [each for each in others if not each.is_leaving]
        mine = [each for each in others if each.host == self.host]
        crowd = mine if len(mine) >= self.most_per_address else others if len(others) >= self.most else []
        if not crowd:
            return
        idle = [each for each in crowd if each.is_idle]
        if idle:
            min(idle, key=lambda each: each.last_heard).leave()
        else:
            self.transport.write(BUSY)
            self.leave()

    @property
    def host(self) -> str:
        """Where it comes from."""
        return self.client[0] if self.client else ""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being answered: its next request has not come, or not whole."""
        if self.conn.their_state is h11.SEND_BODY:
            return True  # the gate lets no route see a request before its whole body
        return self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE

    def leave(self) -> None:
        """Close it."""
        self.is_leaving = True
        self.transport.close()

    def _wait(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_WITHIN_S, self.transport.close)

    def _wait_no_more(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def protocol(most: int, most_per_address: int) -> type[ImpatientProtocol]:
    """The protocol with its limits, as uvicorn takes it.

    Args:
        most: Connections at once.
        most_per_address: Of one address.
    """
    return type("LimitedProtocol", (ImpatientProtocol,), {"most": most, "most_per_address": most_per_address})
