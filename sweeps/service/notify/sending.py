"""Sends one message to one address, as a process of its own: whoever hangs there can be ended, and an address is in no
process's arguments. ``python -m sweeps.service.notify.sending`` reads a document from stdin::

    {"address": "...", "message": {...}, "attempts": 1}

and leaves with status 1 if nobody took the message, having said why on stdout, without secrets.
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
from urllib.request import Request, urlopen

from sweeps.service.notify.address import WEBHOOK, without_secrets

SEND_WITHIN_S = 30.0
"""Seconds that one attempt may take."""
FIRST_WAIT_S, LONGEST_WAIT_S = 10.0, 3600.0
WORST_ANSWER = 200
"""Characters of an answer that are told."""

Document = Mapping[str, Any]
"""A ``Message`` as JSON has it."""


def wait_after(attempts: int) -> float:
    """Seconds until the next attempt: 10, 30, 90, ... at most an hour."""
    return float(min(FIRST_WAIT_S * 3 ** (attempts - 1), LONGEST_WAIT_S))


def send(address: str, message: Document) -> str | None:
    """Send it in a child process; why it did not arrive, without secrets, or None if it did."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=json.dumps({"address": address, "message": message, "attempts": 1}),
            capture_output=True,
            text=True,
            timeout=SEND_WITHIN_S,
            check=False,
            start_new_session=True,  # Ctrl-C in a terminal is not for it
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {SEND_WITHIN_S:.0f} s"
    if done.returncode == 0:
        return None
    said = done.stdout.strip() or without_secrets(done.stderr.strip().rpartition("\n")[2], address)
    return said or f"status {done.returncode}"


def send_aside(address: str, message: Document, attempts: int, log: IO[str]) -> None:
    """Send it in a process that outlives this one, and tries again by itself."""
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
    threading.Thread(target=process.wait, daemon=True).start()  # else it would be left as a zombie


def deliver(address: str, message: Document) -> None:
    """
    Raises:
        Exception: Of whatever kind: it was not taken.
    """
    if address.partition("://")[0].lower() in WEBHOOK:
        _post(address, message)
    else:
        _by_apprise(address, message)


def _post(address: str, message: Document) -> None:
    lines = [f"*{_slack(message['title'])}*", *map(_slack, message["lines"])]
    lines += [f"<{_slack(link)}|{_slack(what)}>" for what, link in message["links"]]
    body = json.dumps({"text": "\n".join(lines)}).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "Sweeps"}
    request = Request(address, body, headers)  # noqa: S310 - the scheme is known here
    try:
        with urlopen(request, timeout=SEND_WITHIN_S):  # noqa: S310 - as above
            pass
    except HTTPError as error:
        said = error.read(WORST_ANSWER).decode(errors="replace")
        raise RuntimeError(f"it answered {error.code}: {said}") from error


def _slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _by_apprise(address: str, message: Document) -> None:
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
        try:
            deliver(address, message)
        except Exception as error:  # noqa: BLE001 - whatever is wrong there, it is told and tried again
            sys.stdout.write(without_secrets(str(error) or type(error).__name__, address) + "\n")
            sys.stdout.flush()
            if attempt < attempts:
                time.sleep(wait_after(attempt))
        else:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
