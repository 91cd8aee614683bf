"""Limits of connections: an HTTP protocol with a timeout for request headers and a maximum of connections, and a socket
that accepts a few at a time. Uvicorn itself waits for ever for the rest of a request's headers, so that a few slow
clients could occupy all connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import OrderedDict, defaultdict
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 21\r\nRetry-After: 5\r\n"
    b"Connection: close\r\n\r\nToo many connections."
)

HEADER_TIMEOUT_S = 10.0
"""Maximum seconds until the request line and the headers have arrived; bodies have ``access.body_timeout_s``."""

BACKLOG = 4096
"""Maximum number of connections that wait in the kernel, as far as the system's own limit allows."""

MOST_CLOSED_AT_ONCE = 100
"""Maximum number of connections, already closed by their clients, that one call of ``accept`` skips."""


class OpenConnections:
    """Open connections of a server, all and by address, ordered by their last activity. Each operation takes constant
    time, since a flood opens thousands a second."""

    def __init__(self) -> None:
        self._all: OrderedDict[LimitedProtocol, None] = OrderedDict()
        self._by_host: defaultdict[str, OrderedDict[LimitedProtocol, None]] = defaultdict(OrderedDict)

    def touch(self, connection: LimitedProtocol) -> None:
        """Mark a connection as the most recently active: it is new, or has sent something."""
        for order in (self._all, self._by_host[connection.host]):
            order[connection] = None
            order.move_to_end(connection)

    def remove(self, connection: LimitedProtocol) -> None:
        self._all.pop(connection, None)
        mine = self._by_host[connection.host]
        mine.pop(connection, None)
        if not mine:
            del self._by_host[connection.host]

    def over_limit(self, host: str, most: int, most_per_address: int) -> OrderedDict[LimitedProtocol, None] | None:
        """Return the connections of the address, or all, if they exceed their limit; otherwise None."""
        mine = self._by_host[host]
        return mine if len(mine) > most_per_address else self._all if len(self._all) > most else None


class LimitedProtocol(H11Protocol):
    """Uvicorn's HTTP protocol with a header timeout and connection limits."""

    most, most_per_address = 1000, 250
    """Maximum number of connections, in all and of one address."""
    open_connections = OpenConnections()
    _deadline: asyncio.TimerHandle | None = None
    host = ""
    """The client's address."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Register a new connection, and close one if there are too many."""
        super().connection_made(transport)
        self.host = self.client[0] if self.client else ""
        self.open_connections.touch(self)
        self._start_timeout()
        self._make_room()

    def data_received(self, data: bytes) -> None:
        """Read data, and stop the timeout once the headers are complete."""
        if not self.transport.is_closing():
            self.open_connections.touch(self)
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._start_timeout()
        else:
            self._stop_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_connections.remove(self)
        self._stop_timeout()
        super().connection_lost(exc)

    def _make_room(self) -> None:
        """Close the connection that has been idle longest if there are too many, or this one if none is idle: nobody
        can keep others out by opening connections."""
        candidates = self.open_connections.over_limit(self.host, self.most, self.most_per_address)
        if candidates is None:
            return
        idle = next((each for each in candidates if each is not self and each.is_idle), None)
        if idle is None:
            self.transport.write(BUSY)
        (idle or self).close()

    @property
    def is_idle(self) -> bool:
        """Whether the connection waits for a request, or for the rest of one."""
        if self.conn.their_state is h11.SEND_BODY:
            return True  # the middleware calls no route before the whole body has arrived
        return self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE

    def close(self) -> None:
        self.open_connections.remove(self)
        self.transport.close()

    def _start_timeout(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_TIMEOUT_S, self.transport.close)

    def _stop_timeout(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def protocol(most: int, most_per_address: int) -> type[LimitedProtocol]:
    """Return a protocol class for uvicorn with a maximum number of connections, in all and of one address."""
    members = {"most": most, "most_per_address": most_per_address, "open_connections": OpenConnections()}
    return type("ServerProtocol", (LimitedProtocol,), members)


class PacedListener(socket.socket):
    """Listening socket that reports no further connections after ``at_once``; asyncio asks again in its next round.

    asyncio accepts all waiting connections, up to thousands, before it reads from any of them. With a limit of
    connections, a client that sends its request at once would be closed before it is read, to make room for the others.

    Where the system can (Linux), a connection waits in the kernel until its client sends something, for up to about
    ``HEADER_TIMEOUT_S``, and one that is closed before that never becomes a connection of the server: a flood of idle
    connections would otherwise occupy the event loop with opening and closing them.
    """

    at_once = 25
    _accepted = 0

    def listen(self, backlog: int = BACKLOG, /) -> None:
        if hasattr(socket, "TCP_DEFER_ACCEPT"):
            with contextlib.suppress(OSError):  # a sandbox may not support it
                self.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, round(HEADER_TIMEOUT_S))
        super().listen(backlog)

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Raises:
            BlockingIOError: No connection waits, or enough were accepted in this round.
        """
        for _ in range(MOST_CLOSED_AT_ONCE):
            if self._accepted >= self.at_once:
                break
            try:
                connection, address = super().accept()
            except OSError:
                self._accepted = 0
                raise
            if not _was_closed(connection):
                self._accepted += 1
                return connection, address
            connection.close()
        self._accepted = 0
        raise BlockingIOError


def _was_closed(connection: socket.socket) -> bool:
    """Return whether the client has closed a connection without sending anything."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True  # reset
