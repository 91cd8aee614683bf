"""A listening socket that accepts a limited number of connections at a time."""

from __future__ import annotations

import socket
from typing import Any


class PacedListener(socket.socket):
    """Listening socket that reports no further connections after ``at_once``; asyncio asks again in its next round.

    asyncio accepts all waiting connections, up to thousands, before it reads from any of them. With a limit of
    connections, a client that sends its request at once would be closed before it is read, to make room for the others.
    """

    at_once = 25
    _accepted = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Raises:
            BlockingIOError: No connection waits, or enough were accepted in this round.
        """
        if self._accepted >= self.at_once:
            self._accepted = 0
            raise BlockingIOError
        self._accepted += 1
        try:
            return super().accept()
        except OSError:
            self._accepted = 0
            raise
