"""A listening socket that hands over a few connections at a time."""

from __future__ import annotations

import socket
from typing import Any


class PacedListener(socket.socket):
    """asyncio accepts all connections that wait, up to thousands, before it reads from any of them. Where connections
    are limited, a client that asks at once would be closed unheard, to make room for those that came with it. After
    ``at_once`` connections this socket says that no more wait, and asyncio comes back for them in its next round."""

    at_once = 25
    _accepted = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """As ``socket.accept``.

        Raises:
            BlockingIOError: None wait, or enough were accepted in this round.
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
