"""Sends one message to one address, in a child process that can be killed if it hangs; the address is not in its
arguments. ``python -m sweeps.service.notify.sending`` reads a document from stdin::

    {"address": "...", "message": {...}, "attempts": 1}

If the delivery fails, it prints the reason to stdout, without secrets, and exits with status 1.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener
from xml.sax.saxutils import escape

from sweeps.service.notify.address import WEBHOOK, without_secrets

SEND_WITHIN_S = 30.0
"""Maximum seconds of one attempt."""
FIRST_WAIT_S, LONGEST_WAIT_S = 10.0, 3600.0
MAX_ANSWER = 200
"""Maximum characters of an error response that a message quotes."""

Document = Mapping[str, Any]
"""A ``Message`` as JSON."""


def wait_after(attempts: int) -> float:
    """Return the seconds until the next attempt: 10, 30, 90 and so on, at most an hour."""
    return float(min(FIRST_WAIT_S * 3 ** (attempts - 1), LONGEST_WAIT_S))


def send(address: str, message: Document) -> str | None:
    """Send a message in a child process; return the error without secrets, or None."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=json.dumps({"address": address, "message": message, "attempts": 1}),
            capture_output=True,
            text=True,
            timeout=SEND_WITHIN_S,
            check=False,
            start_new_session=True,  # not reached by Ctrl-C in a terminal
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {SEND_WITHIN_S:.0f} s"
    if done.returncode == 0:
        return None
    output = done.stdout.strip() or without_secrets(done.stderr.strip().rpartition("\n")[2], address)
    return output or f"status {done.returncode}"


def send_in_background(address: str, message: Document, attempts: int, log: IO[str]) -> None:
    """Send a message in a child process that outlives this one and repeats failed attempts itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({"address": address, "message": message, "attempts": attempts}))
    process.stdin.close()
    threading.Thread(target=process.wait, daemon=True).start()  # prevents a zombie process


def deliver(address: str, message: Document) -> str | None:
    """Send a message from this process; return the error without secrets, or None."""
    try:
        if address.partition("://")[0].lower() in WEBHOOK:
            _post(address, message)
        else:
            _send_by_apprise(address, message)
    except Exception as error:  # noqa: BLE001 - any error is a reason to try again
        return without_secrets(str(error) or type(error).__name__, address)
    return None


def _post(address: str, message: Document) -> None:
    lines = [f"*{escape(message['title'])}*", *map(escape, message["lines"])]
    lines += [f"<{escape(link)}|{escape(what)}>" for what, link in message["links"]]
    body = json.dumps({"text": "\n".join(lines)}).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "Sweeps"}
    request = Request(address, body, headers)  # noqa: S310 - the scheme is known here
    try:
        with build_opener(_SendingAgain).open(request, timeout=SEND_WITHIN_S):
            pass
    except HTTPError as error:
        said = error.read(MAX_ANSWER).decode(errors="replace")
        raise RuntimeError(f"it answered {error.code}: {said}") from error


class _SendingAgain(HTTPRedirectHandler):
    """Redirect handler that sends the message to the new address. For status 301, urllib would send a GET request
    without the message and count its answer as a delivery; it would refuse 307 and 308. Status 302 usually names a
    result of the delivery, unless it only asks for ``https``."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        asks_for_https = code == 302 and newurl == req.full_url.replace("http://", "https://", 1)
        if code in (301, 307, 308) or asks_for_https:
            return Request(newurl, req.data, req.headers)  # noqa: S310 - urllib has checked the scheme
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _send_by_apprise(address: str, message: Document) -> None:
    import apprise

    kind = {"failed": "failure", "regression": "warning", "budget": "warning", "promoted": "success"}
    channel = apprise.Apprise()
    channel.add(address)
    body = "\n".join([*message["lines"], *(f"{what}: {link}" for what, link in message["links"])])
    with apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as said:  # type: ignore[no-untyped-call]
        sent = channel.notify(
            body=body,
            title=message["title"],
            notify_type=kind.get(message["event"], "info"),
            body_format=apprise.NotifyFormat.TEXT,
        )
        if not sent:
            raise RuntimeError(said.getvalue().strip().replace("\n", "; ") or "apprise could not send it")


def main() -> int:
    document = json.load(sys.stdin)
    address, message, attempts = document["address"], document["message"], document["attempts"]
    for attempt in range(1, attempts + 1):
        if (error := deliver(address, message)) is None:
            return 0
        sys.stdout.write(f"{error}\n")
        sys.stdout.flush()
        if attempt < attempts:
            time.sleep(wait_after(attempt))
    return 1


if __name__ == "__main__":
    sys.exit(main())
