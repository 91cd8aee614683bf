"""How long a connection may take to say what it wants, and how many there may be. Uvicorn itself waits for ever for the
rest of a request's head, so that a few slow clients could hold all the connections that there are."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 21\r\nRetry-After: 5\r\n"
    b"Connection: close\r\n\r\nToo many connections."
)

HEAD_WITHIN_S = 10.0
"""For the first line and the headers; bodies have ``access.body_timeout_s``."""


class OpenConnections:
    """The open connections of a server, those first that have been silent longest, altogether and by address. A flood
    opens thousands a second, so each operation takes the same time whatever their number."""

    def __init__(self) -> None:
        self._all: OrderedDict[ImpatientProtocol, None] = OrderedDict()
        self._by_host: defaultdict[str, OrderedDict[ImpatientProtocol, None]] = defaultdict(OrderedDict)

    def heard(self, connection: ImpatientProtocol) -> None:
        """Put it last: it is new, or has sent something."""
        for order in (self._all, self._by_host[connection.host]):
            order[connection] = None
            order.move_to_end(connection)

    def remove(self, connection: ImpatientProtocol) -> None:
        """Forget it, if it is there."""
        self._all.pop(connection, None)
        mine = self._by_host[connection.host]
        mine.pop(connection, None)
        if not mine:
            del self._by_host[connection.host]

    def crowd(self, host: str, most: int, most_per_address: int) -> OrderedDict[ImpatientProtocol, None] | None:
        """Those of the address, or all, of which there are too many; None where there is room."""
        mine = self._by_host[host]
        return mine if len(mine) > most_per_address else self._all if len(self._all) > most else None


class ImpatientProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, to those who are not slow on purpose."""

    most, most_per_address = 1000, 250
    """Connections at once."""
    open_connections = OpenConnections()
    _deadline: asyncio.TimerHandle | None = None
    host = ""
    """The client's address."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """A client has come."""
        super().connection_made(transport)
        self.host = self.client[0] if self.client else ""
        self.open_connections.heard(self)
        self._wait()
        self._make_room()

    def data_received(self, data: bytes) -> None:
        """It has said something, which may be a part of a head only."""
        if not self.transport.is_closing():
            self.open_connections.heard(self)
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait()
        else:
            self._wait_no_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone."""
        self.open_connections.remove(self)
        self._wait_no_more()
        super().connection_lost(exc)

    def _make_room(self) -> None:
        """Where there are too many, of this address or of all, the one that has been idle longest is closed; if none is
        idle, this one. So nobody keeps others out by connections alone."""
        crowd = self.open_connections.crowd(self.host, self.most, self.most_per_address)
        if crowd is None:
            return
        idle = next((each for each in crowd if each is not self and each.is_idle), None)
        if idle is None:
            self.transport.write(BUSY)
        (idle or self).leave()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being answered: its next request has not come, or not whole."""
        if self.conn.their_state is h11.SEND_BODY:
            return True  # the gate lets no route see a request before its whole body
        return self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE

    def leave(self) -> None:
        """Close it."""
        self.open_connections.remove(self)
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
    members = {"most": most, "most_per_address": most_per_address, "open_connections": OpenConnections()}
    return type("LimitedProtocol", (ImpatientProtocol,), members)
