"""A server that hangs, as a client sees it: a proxy on the loopback interface that takes connections and bytes, and
passes nothing on while it is told to."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress


class HangingProxy:
    """Passes bytes between its port and another one."""

    def __init__(self, port: int) -> None:
        """Begin to pass on what comes for a server on 127.0.0.1."""
        self._target = port
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self.port: int = self._listener.getsockname()[1]
        self.hangs = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and close all connections."""
        self._stopping = True
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._stopping:
            if self.hangs:
                threading.Event().wait(0.02)  # the kernel goes on accepting
                continue
            for key, _ in self._selector.select(0.05):
                if key.data is None:
                    self._accept()
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._pass_on(key.fileobj, key.data)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._target))
        except OSError:  # the server has ended before its clients
            client.close()
            return
        self._selector.register(client, selectors.EVENT_READ, server)
        self._selector.register(server, selectors.EVENT_READ, client)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            if content := source.recv(65536):
                target.sendall(content)
                return
        for each in (source, target):
            with suppress(KeyError, ValueError):
                self._selector.unregister(each)
            each.close()
