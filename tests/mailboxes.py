"""Real servers on the loopback interface that take messages, or refuse them, or never answer."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any

from small_http import Handler


@dataclass
class Mailbox:
    """Messages that a mail server has received."""

    port: int = 0
    received: list[Any] = field(default_factory=list)
    """Documents of a webhook, or whole mails."""
    refused: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def webhook(
    status: int = 200, hang: threading.Event | None = None, moved_to: str = "", text: str = ""
) -> Iterator[Mailbox]:
    """A server that answers with a status and a text, by default one that names the path: at once, or when ``hang`` is
    set. It may send those who ask to another address."""
    box = Mailbox()

    class WebhookHandler(Handler):
        def answer(self) -> None:
            if self.command == "GET":
                self.send(200)
                return
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if hang is not None:
                hang.wait(60)
                return
            if status == 200:
                box.received.append(json.loads(body))
            else:
                box.refused += 1
            headers = {"Location": moved_to} if moved_to else None
            self.send(status, (text or f"no luck with {self.path}").encode(), headers)

    with _served(ThreadingHTTPServer(("127.0.0.1", 0), WebhookHandler), box):
        yield box


@contextmanager
def mail_server() -> Iterator[Mailbox]:
    """As much of RFC 5321 as a mail needs."""
    box = Mailbox()

    class MailHandler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 hello")
            while line := self.rfile.readline().decode().strip():
                verb = line.partition(" ")[0].upper()
                if verb == "DATA":
                    self._say("354 go on")
                    lines = []
                    while (text := self.rfile.readline().decode().rstrip("\r\n")) != ".":
                        lines.append(text)
                    box.received.append("\n".join(lines))
                self._say({"EHLO": "250 me", "QUIT": "221 bye"}.get(verb, "250 ok"))
                if verb == "QUIT":
                    return

        def _say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

    with _served(socketserver.ThreadingTCPServer(("127.0.0.1", 0), MailHandler), box):
        yield box


@contextmanager
def _served(server: socketserver.TCPServer, box: Mailbox) -> Iterator[None]:
    box.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
