"""Checks of every request before any route sees it, and the headers of every answer.

Whoever has no good token costs next to nothing: no body of theirs is kept or parsed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import sys
import traceback
from collections.abc import Collection
from typing import NoReturn

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sweeps.provenance.secrets import redacted
from sweeps.service.auth.auth import FORMS, Authenticator
from sweeps.service.auth.csrf import SAFE_METHODS, refusal_of_host, refusal_of_site
from sweeps.service.database.engine import REQUESTS_WAIT_S, wait_at_most
from sweeps.service.database.storage_errors import RETRY_AFTER_S, first_line, is_unavailable, outage

API = "/api/"
ALIVE = {"/api/v1/health", "/api/v1/ready"}
"""Answered to everybody without a look at the database, which may be what does not work."""
SIGN_IN = "/sign-in"
"""The one address that takes a body from who has no token yet."""
LARGEST_SIGN_IN = 8 * 1024
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with `no-referrer`, browsers would hide the Origin of our own forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Of every answer that does not set them itself."""
STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""Pattern of a JSON string, closed or not: no character is matched twice."""
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
CONTROL = re.compile(rb"%(?:[01][0-9a-f]|7f)", re.IGNORECASE)

logger = logging.getLogger(__name__)


class _Refused(Exception):
    """A request that no route sees."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(status, detail)
        self.status, self.detail = status, detail


class SecurityMiddleware:
    """ASGI middleware: hosts, sites, bodies; headers of answers; errors of ours without their insides."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, own: Collection[str] = ()) -> None:
        """
        Args:
            app: Behind it.
            authenticator: The service's.
            own: Addresses under which browsers know us, where a proxy changes the host: ``https://sweeps.example.org``.
        """
        self._app = app
        self._authenticator = authenticator
        self._own = [each.rstrip("/") for each in (*own, *authenticator.access.allowed_origins)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let pass."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        wait_at_most(REQUESTS_WAIT_S)
        try:
            await self._check_origin(scope)
            body = await self._body(scope, receive, is_read=await self._is_body_read(scope))
            await self._app(scope, _replayed(body, receive), answer.send)
        except _Refused as refused:
            await JSONResponse({"detail": refused.detail}, refused.status)(scope, receive, answer.send)
        except ClientDisconnect:
            pass
        except Exception:  # noqa: BLE001 - whatever it is, its insides stay here
            await self._explain(scope, receive, answer)

    async def _check_origin(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if CONTROL.search(scope.get("raw_path") or b"") or CONTROL.search(scope["query_string"]):
            raise _Refused(400, "the address has a control character in it")
        if (
            scope["path"] not in ALIVE
            and not await self._authenticator.is_closed()
            and (refusal := refusal_of_host(headers))
        ):
            raise _Refused(421, refusal)
        if refusal := refusal_of_site(scope["method"], headers, self._own):
            raise _Refused(403, refusal)

    async def _is_body_read(self, scope: Scope) -> bool:
        """Whether anybody looks at the body: only of a request that may change something, and of who has a good token.
        For all others an empty one takes its place, and their route answers as it would."""
        if scope["method"] in SAFE_METHODS:
            return False
        return scope["path"] == SIGN_IN or await self._authenticator.knows(Request(scope))

    async def _body(self, scope: Scope, receive: Receive, *, is_read: bool) -> bytes:
        """The whole body; it is small, and must come soon."""
        access = self._authenticator.access
        largest = LARGEST_SIGN_IN if scope["path"] == SIGN_IN else access.max_body_kib * 1024
        try:
            async with asyncio.timeout(access.body_timeout_s):
                body = await _read(receive, largest, is_kept=is_read)
        except TimeoutError:
            raise _Refused(408, f"the body did not come within {access.body_timeout_s:g} s") from None
        if not is_read or not scope["path"].startswith(API):
            return body
        kind = Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
        # Other sites' pages can send forms and plain text without asking us first, and JSON they cannot.
        if (body or kind in (*FORMS, "text/plain")) and kind != "application/json":
            raise _Refused(415, "the body must be JSON, with Content-Type: application/json")
        if body:
            check_json(body, access.max_depth)
        return body

    async def _explain(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        if (error := sys.exception()) is not None and is_unavailable(error):
            outage.report(error, f"{scope['method']} {scope['path']}")
            if not answer.has_begun:
                document = {"detail": f"the service's storage does not work now ({first_line(error)}); try again later"}
                again = {"Retry-After": str(RETRY_AFTER_S)}
                await JSONResponse(document, 503, again)(scope, receive, answer.send)
            return
        reference = secrets.token_hex(4)
        logger.error(
            "%s %s (reference %s): %s", scope["method"], scope["path"], reference, redacted(traceback.format_exc())
        )
        if answer.has_begun:
            return  # the server closes the connection, since what it announced does not come
        document = {"detail": f"this went wrong on our side; the service's log has more, at reference {reference}"}
        await JSONResponse(document, 500)(scope, receive, answer.send)


class _Answer:
    """An answer on its way out."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False

    async def send(self, message: Message) -> None:
        """Pass it on, with our headers."""
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)


async def _read(receive: Receive, largest: int, *, is_kept: bool) -> bytes:
    body, length = bytearray(), 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        length += len(part)
        if is_kept:
            body += part
        if length > largest:
            raise _Refused(413, f"the body is larger than the {largest // 1024} KiB that the service takes")
        if not message.get("more_body", False):
            return bytes(body)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body once, and what comes after it."""
    waiting = [body]

    async def again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return again


def check_json(body: bytes, max_depth: int) -> None:
    """
    Raises:
        _Refused: Python would stumble over it, in reading it or in answering.
    """
    depth = 0
    for bracket in STRINGS.sub(b"", body).translate(None, NO_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > max_depth:
            raise _Refused(400, f"the JSON has more than {max_depth} brackets within brackets")
    try:
        document = json.loads(body, parse_constant=_refuse_constant)
        json.dumps(document, ensure_ascii=False).encode()
    except ValueError as error:  # no JSON, a number of thousands of digits, half a character
        raise _Refused(400, f"the body is no JSON: {str(error)[:200]}") from None
    if b"\\u0000" in body or b"\x00" in body:
        raise _Refused(400, "the JSON has a null character in it")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
