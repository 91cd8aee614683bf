"""The web server of the service: listens, and serves until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import resource
import signal
import socket
import threading
from collections.abc import Iterator

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sweeps.config.service import Service
from sweeps.errors import UserError
from sweeps.service.api.app import make_app
from sweeps.service.app_context import AppContext, host_in_url
from sweeps.service.web.figures import load_libraries

SHUTDOWN_S = 5
"""Maximum seconds to finish open requests at shutdown."""

OTHER_FILES = 500
"""Number of open files in addition to connections: databases, logs, pipes."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals without raising them again after the shutdown, as uvicorn would: the other parts must still
        stop."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(service: AppContext, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT."""
    access = service.config.access
    _raise_file_limit(access.connections + OTHER_FILES)
    server = _Server(
        uvicorn.Config(
            make_app(service),
            http=_protocol(access.connections),
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
    )
    service.start()
    uri = service.config.tracking_uri
    threading.Thread(target=load_libraries, args=(uri,), name="load libraries", daemon=True).start()
    try:
        server.run(sockets=[listener])
    finally:
        service.stop()


def _protocol(most: int) -> type[H11Protocol]:
    """Return a protocol for uvicorn that closes connections above a maximum, so that files are left for everything
    else. Uvicorn's other protocol, by httptools, takes headers of any size."""

    class Protocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's own
            super().connection_made(transport)
            if len(self.connections) > most:
                transport.close()

    return Protocol


def _raise_file_limit(count: int) -> None:
    """Raise this process's limit of open files, as far as the machine allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def listen(config: Service) -> socket.socket:
    """Open the listening socket.

    Raises:
        UserError: The address cannot be bound.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen()
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise UserError(
            f"host={config.host} port={config.port}: cannot listen ({error.strerror}); if another program uses "
            "the port, choose another port=, or port=0 for any free one"
        ) from None
    return listener


def address(listener: socket.socket) -> str:
    """Return the address of the service for a browser on this machine."""
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = socket.gethostname()
    return f"http://{host_in_url(host)}:{port}"
