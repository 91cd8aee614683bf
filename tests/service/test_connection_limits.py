"""Clients that are slow on purpose, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from web_server import listening

from sweeps.service.auth import connection_limits
from sweeps.service.auth.connection_limits import LimitedProtocol, PacedListener

WITHIN_S = 0.6
HEAD = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Takes its time, and answers with the length of the body."""
    message, length = {"more_body": True}, 0
    while message.get("more_body"):
        message = await receive()
        length += len(message.get("body", b""))
    await asyncio.sleep(2 * WITHIN_S if scope["path"] == "/slow" else 0)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})
    await send({"type": "http.response.body", "body": b"%3d" % length})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    patch = pytest.MonkeyPatch()
    patch.setattr(connection_limits, "HEADER_TIMEOUT_S", WITHIN_S)
    with listening(application, http=LimitedProtocol, ws="none") as port:
        yield port
    patch.undo()


def connect(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    client.settimeout(20)
    return client


def closed_after(client: socket.socket, since: float) -> float:
    assert client.recv(1000) == b""
    return time.monotonic() - since


def answer(client: socket.socket) -> bytes:
    """The body of an answer, which has three bytes."""
    received = b""
    while not received.partition(b"\r\n\r\n")[2]:
        received += client.recv(1000)
    assert received.startswith(b"HTTP/1.1 200 OK")
    return received[-3:]


def dribble(client: socket.socket, text: bytes) -> int:
    """Byte by byte; how many could be sent."""
    for sent, byte in enumerate(text):
        try:
            client.send(bytes([byte]))
        except OSError:
            return sent
        time.sleep(0.1)
    return len(text)


def test_who_says_nothing_or_half_a_head_is_left_after_a_while(port: int) -> None:
    with connect(port) as silent, connect(port) as half:
        since = time.monotonic()
        half.send(HEAD[:20])
        assert WITHIN_S * 0.9 < closed_after(silent, since) < WITHIN_S + 5
        assert closed_after(half, since) < WITHIN_S + 5


def test_who_sends_a_head_byte_by_byte_gains_no_time_by_it(port: int) -> None:
    with connect(port) as client:
        assert dribble(client, b"GET / HTTP/1.1\r\nX: " + b"x" * 100) < 60


def test_a_second_request_of_a_connection_has_no_more_time(port: int) -> None:
    with connect(port) as client:
        client.send(HEAD)
        assert answer(client) == b"  0"
        time.sleep(0.1)
        since = time.monotonic()
        client.send(HEAD[:20])
        assert WITHIN_S * 0.9 < closed_after(client, since) < WITHIN_S + 3  # uvicorn itself ends idle ones after 5 s


def test_a_slow_answer_and_a_slow_body_are_nobodys_malice(port: int) -> None:
    with connect(port) as waits, connect(port) as sends:
        waits.send(HEAD.replace(b"GET /", b"GET /slow"))
        sends.send(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 14\r\n\r\n")
        dribble(sends, b"x" * 14)
        assert answer(sends) == b" 14"
        assert answer(waits) == b"  0"


def test_slow_ones_are_gone_when_others_come(port: int) -> None:
    slow = [connect(port) for _ in range(50)]
    for client in slow:
        client.send(HEAD[:5])
    time.sleep(WITHIN_S)
    with connect(port) as quick:
        quick.send(HEAD)
        assert answer(quick) == b"  0"
    for client in slow:
        assert client.recv(10) == b""
        client.close()


@pytest.fixture
def crowded() -> Iterator[int]:
    with listening(application, http=connection_limits.protocol(8, 4), ws="none") as port:
        yield port


def test_idle_connections_of_one_address_keep_nobody_out(crowded: int) -> None:
    idle = [connect(crowded) for _ in range(30)]
    for _ in range(3):
        with connect(crowded) as client:
            client.send(HEAD)
            assert answer(client) == b"  0"
    closed = 0
    for client in idle:
        client.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            closed += client.recv(10) == b""
        client.close()
    assert closed >= 30 - 4


def test_bodies_that_do_not_come_keep_nobody_out(crowded: int) -> None:
    slow = [connect(crowded) for _ in range(4)]
    for client in slow:
        client.send(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 14\r\n\r\nx")
    time.sleep(0.3)
    with connect(crowded) as client:
        client.send(HEAD)
        assert answer(client) == b"  0"
    for client in slow:
        client.close()


def test_connections_that_are_being_answered_are_not_closed_for_others_and_leave_room_for_other_addresses(
    crowded: int,
) -> None:
    busy = [connect(crowded) for _ in range(4)]  # as many as one address may have
    for client in busy:
        client.send(HEAD.replace(b"GET /", b"GET /slow"))
    time.sleep(0.3)
    with connect(crowded) as one_more:
        assert one_more.recv(1000).startswith(b"HTTP/1.1 503")
    with socket.create_connection(("127.0.0.1", crowded), source_address=("127.0.0.2", 0)) as other:
        other.settimeout(20)
        other.send(HEAD)
        assert answer(other) == b"  0"
    assert [answer(client) for client in busy] == [b"  0"] * 4
    for client in busy:
        client.close()


def test_a_paced_listener_lets_asyncio_read_before_it_accepts_more() -> None:
    with PacedListener() as listener:
        listener.at_once = 2
        listener.bind(("127.0.0.1", 0))
        listener.listen(10)
        listener.settimeout(5)
        clients = [socket.create_connection(listener.getsockname()) for _ in range(3)]
        for each in clients:
            each.send(HEAD)
        accepted = [listener.accept()[0] for _ in range(2)]
        with pytest.raises(BlockingIOError):
            listener.accept()
        accepted.append(listener.accept()[0])
        for each in (*clients, *accepted):
            each.close()


def test_a_flood_of_connections_that_send_nothing_and_are_closed_never_reaches_the_server() -> None:
    with PacedListener() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        listener.setblocking(False)
        for _ in range(50):
            socket.create_connection(listener.getsockname()).close()
        with pytest.raises(BlockingIOError):
            listener.accept()
        with socket.create_connection(listener.getsockname()) as client:
            client.send(HEAD)
            listener.settimeout(5)
            accepted, address = listener.accept()
            assert address == client.getsockname()
            accepted.close()
