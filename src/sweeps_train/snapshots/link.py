"""Connections from rank 0 to each other worker, which carry parts of a snapshot during the training.

They are not a process group: a thread that waits for a process group cannot be ended; one that waits for a link ends
when either side closes.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import socket
from typing import Any

import torch

from sweeps_train.workers.distributed import Workers

CONNECT_WITHIN_S = 30.0
_LOOPBACK = "127.0.0.1"
_LENGTH_BYTES = 8
_SECRET_BYTES = 32
_RANK_BYTES = 4
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""TCP options by which a machine that has lost power is detected after a minute; a process that ends is detected
immediately."""


class Link:
    """One end of a connection between rank 0 and another worker."""

    def __init__(self, connected: socket.socket):
        self._socket = connected

    def send(self, value: object) -> None:
        """Send a picklable value."""
        content = pickle.dumps(value)
        self._socket.sendall(len(content).to_bytes(_LENGTH_BYTES, "little") + content)

    def receive(self) -> Any:
        """Wait for the next value from the other side.

        Raises:
            ConnectionError: The other side has ended.
        """
        length = int.from_bytes(self.receive_bytes(_LENGTH_BYTES), "little")
        return pickle.loads(self.receive_bytes(length))  # noqa: S301 - of a worker that has shown the secret

    def send_tensor(self, tensor: torch.Tensor) -> None:
        """Send the content of a CPU tensor."""
        self._socket.sendall(_content(tensor.contiguous()))

    def receive_tensor(self, target: torch.Tensor) -> None:
        """Wait for the content of a tensor, and write it into a CPU tensor of the same shape and dtype.

        Raises:
            ConnectionError: The other side has ended.
        """
        received = target if target.is_contiguous() else torch.empty_like(target, memory_format=torch.contiguous_format)
        self._receive_into(_content(received))
        if received is not target:
            target.copy_(received)

    def close(self) -> None:
        """Close the connection; a side that waits on it gets an error."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def receive_bytes(self, size: int) -> bytes | bytearray:
        """Wait for this many bytes.

        Raises:
            ConnectionError: The other side has ended.
        """
        content = bytearray(size)
        self._receive_into(memoryview(content))
        return content

    def _receive_into(self, content: memoryview) -> None:
        while content:
            size = self._socket.recv_into(content)
            if size == 0:
                raise ConnectionError("another worker has ended while a checkpoint was being saved")
            content = content[size:]


def link_workers(workers: Workers, *, is_here: bool) -> list[Link] | None:
    """Connect rank 0 with all other workers; all workers must call it at the same time. ``is_here`` says whether this
    worker is on the first worker's machine.

    Returns:
        On the first worker the links to the others, by rank; on each of the others its link to the first. None on all
        workers if some cannot reach the first.
    """
    if workers.size == 1:
        return []
    are_all_here = workers.sum([float(is_here)]) == [workers.size]
    with contextlib.ExitStack() as stack:
        server, told = None, None
        if workers.rank == 0:
            server = stack.enter_context(_server(_LOOPBACK if are_all_here else ""))
            # The workers of torch's default process group have met on the machine of its first worker.
            host = os.environ.get("MASTER_ADDR") or socket.gethostname()
            told = host, server.getsockname()[1], secrets.token_bytes(_SECRET_BYTES)
        host, port, secret = workers.broadcast(told)  # type: ignore[misc] # which rank 0 has
        own = None if workers.rank == 0 else _connected(_LOOPBACK if is_here else host, port, secret, workers.rank)
        if workers.sum([float(own is None)]) != [1.0]:  # only the first worker has none
            if own is not None:
                own.close()
            return None
        return [own] if own is not None else _accepted(server, secret, workers.size)  # type: ignore[arg-type]


def _server(host: str) -> socket.socket:
    """Return a socket that listens on an address of this machine, or on all of its addresses."""
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server((host, 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server((host, 0))


def _connected(host: str, port: int, secret: bytes, rank: int) -> Link | None:
    try:
        connected = socket.create_connection((host, port), CONNECT_WITHIN_S)
        connected.sendall(secret + rank.to_bytes(_RANK_BYTES, "little"))
        connected.settimeout(None)
    except OSError:
        return None
    return Link(_kept_alive(connected))


def _accepted(server: socket.socket, secret: bytes, size: int) -> list[Link]:
    """Return the links to all other workers, which have already connected."""
    links: dict[int, Link] = {}
    while len(links) < size - 1:
        connected = _kept_alive(server.accept()[0])
        connected.settimeout(CONNECT_WITHIN_S)
        link = Link(connected)
        try:
            greeting = link.receive_bytes(_SECRET_BYTES + _RANK_BYTES)
        except OSError:
            greeting = b""
        if secrets.compare_digest(greeting[:_SECRET_BYTES], secret):
            connected.settimeout(None)
            links[int.from_bytes(greeting[_SECRET_BYTES:], "little")] = link
        else:  # a port scanner
            link.close()
    return [links[rank] for rank in sorted(links)]


def _kept_alive(connected: socket.socket) -> socket.socket:
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connected


def _content(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a contiguous tensor, without a copy."""
    content: memoryview = tensor.detach().reshape(-1).view(torch.uint8).numpy().data
    return content
