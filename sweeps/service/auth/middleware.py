"""ASGI middleware: checks of every request before its route, and the headers of every response.

Requests without a valid token cost next to nothing: their bodies are neither kept nor parsed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import sys
import time
import traceback
from collections.abc import Collection
from typing import NoReturn

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sweeps.provenance.redaction import redacted
from sweeps.service.auth.auth import FORMS, Authenticator
from sweeps.service.auth.csrf import SAFE_METHODS, refusal_of_host, refusal_of_site
from sweeps.service.counters import REQUEST_SECONDS, REQUESTS
from sweeps.service.database.storage_errors import RETRY_AFTER_S, first_line, is_unavailable, outage
from sweeps.service.database.timeouts import SERVICE_S, waiting_at_most
from sweeps.tracking.client import reaching_within

API = "/api/"
HEALTH_PATHS = {"/api/v1/health", "/api/v1/ready"}
"""Paths that are answered without a token and without the database, which may be unavailable."""
MLFLOW_S = 2.0
"""Timeout in seconds for MLflow's first answer; a request that needs several is still answered within 5 s."""
SIGN_IN = "/sign-in"
"""The only path that accepts a body without a token."""
MAX_SIGN_IN_BYTES = 8 * 1024
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # `no-referrer` would remove the Origin of our own forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Default headers of every response."""
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""Pattern of a JSON string, closed or not; possessive, so that it takes linear time."""
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
CONTROL = re.compile(rb"%(?:[01][0-9a-f]|7f)", re.IGNORECASE)

logger = logging.getLogger(__name__)


class SecurityMiddleware:
    """Checks host, origin and body of requests, sets response headers, and hides the details of internal errors."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, own: Collection[str] = ()) -> None:
        """Protect an application. ``own`` are origins of the service if a proxy changes the host, such as
        ``https://sweeps.example.org``."""
        self._app = app
        self._authenticator = authenticator
        self._own = [each.rstrip("/") for each in (*own, *authenticator.access.allowed_origins)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, then answer it or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if f"https://{Headers(scope=scope).get('host')}" in self._own:
            scope["scheme"] = "https"  # a proxy has received it: addresses in the answer must lead there
        response = _Response(send, scope["method"])
        try:
            with waiting_at_most(SERVICE_S), reaching_within(MLFLOW_S):
                await self._check_origin(scope)
                body = await self._body(scope, receive, is_kept=await self._keeps_body(scope))
                await self._app(scope, _replay(body, receive), response.send)
        except HTTPException as refused:  # raised here, since routes answer their own
            await JSONResponse({"detail": refused.detail}, refused.status_code)(scope, receive, response.send)
        except ClientDisconnect:
            pass
        except Exception:  # noqa: BLE001 - logged here, without details in the response
            await self._answer_error(scope, receive, response)

    async def _check_origin(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if CONTROL.search(scope.get("raw_path") or b"") or CONTROL.search(scope["query_string"]):
            raise HTTPException(400, "the address contains a control character")
        if (
            scope["path"] not in HEALTH_PATHS
            and not await self._authenticator.requires_tokens()
            and (refusal := refusal_of_host(headers))
        ):
            raise HTTPException(421, refusal)
        if refusal := refusal_of_site(scope["method"], headers, self._own):
            raise HTTPException(403, refusal)

    async def _keeps_body(self, scope: Scope) -> bool:
        """Whether the body is kept: only that of an authenticated request that may change something. Otherwise the
        route gets an empty body."""
        if scope["method"] in SAFE_METHODS:
            return False
        return scope["path"] == SIGN_IN or await self._authenticator.is_authenticated(Request(scope))

    async def _body(self, scope: Scope, receive: Receive, *, is_kept: bool) -> bytes:
        """Return the whole body, which is limited in size and time."""
        access = self._authenticator.access
        max_bytes = MAX_SIGN_IN_BYTES if scope["path"] == SIGN_IN else access.max_body_kib * 1024
        try:
            async with asyncio.timeout(access.body_timeout_s):
                body = await _read(Request(scope, receive), max_bytes, is_kept=is_kept)
        except TimeoutError:
            raise HTTPException(408, f"the body did not arrive within {access.body_timeout_s:g} s") from None
        if not is_kept or not scope["path"].startswith(API):
            return body
        kind = Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
        # Pages of other sites can send forms and plain text without a CORS preflight, but not JSON.
        if (body or kind in (*FORMS, "text/plain")) and kind != "application/json":
            raise HTTPException(415, "the body must be JSON, with Content-Type: application/json")
        if body:
            check_json(body, access.max_depth)
        return body

    async def _answer_error(self, scope: Scope, receive: Receive, response: _Response) -> None:
        if (error := sys.exception()) is not None and is_unavailable(error):
            outage.report(error, f"{scope['method']} {scope['path']}")
            if not response.has_begun:
                document = {"detail": f"the service's storage does not work now ({first_line(error)}); try again later"}
                again = {"Retry-After": str(RETRY_AFTER_S)}
                await JSONResponse(document, 503, again)(scope, receive, response.send)
            return
        reference = secrets.token_hex(4)
        logger.error(
            "%s %s (reference %s): %s", scope["method"], scope["path"], reference, redacted(traceback.format_exc())
        )
        if response.has_begun:
            return  # the server closes the connection, since the response is incomplete
        document = {"detail": f"internal error; the service's log has the details under reference {reference}"}
        await JSONResponse(document, 500)(scope, receive, response.send)


class _Response:
    """A response being sent."""

    def __init__(self, send: Send, method: str) -> None:
        self._send, self._method, self._since = send, method, time.monotonic()
        self.has_begun = False

    async def send(self, message: Message) -> None:
        """Send a message with the default headers."""
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            method = self._method if self._method in METHODS else "other"
            REQUESTS.labels(method, message["status"]).inc()
            REQUEST_SECONDS.observe(time.monotonic() - self._since)
        await self._send(message)


async def _read(request: Request, max_bytes: int, *, is_kept: bool) -> bytes:
    body, length = bytearray(), 0
    async for part in request.stream():
        length += len(part)
        if length > max_bytes:
            raise HTTPException(413, f"the body is larger than the {max_bytes // 1024} KiB that the service accepts")
        if is_kept:
            body += part
    return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that yields the body, and then later messages."""
    waiting = [body]

    async def again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return again


def check_json(body: bytes, max_depth: int) -> None:
    """Raise ``HTTPException`` with status 400 if a JSON body is not valid, or too deep for Python."""
    depth = 0
    for bracket in STRINGS.sub(b"", body).translate(None, NO_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > max_depth:
            raise HTTPException(400, f"the JSON is nested more than {max_depth} levels deep")
    try:
        document = json.loads(body, parse_constant=_refuse_constant)
        json.dumps(document, ensure_ascii=False).encode()
    except ValueError as error:  # invalid JSON, a number of thousands of digits, a lone surrogate
        raise HTTPException(400, f"the body is not valid JSON: {str(error)[:200]}") from None
    if b"\\u0000" in body or b"\x00" in body:
        raise HTTPException(400, "the JSON contains a null character")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
