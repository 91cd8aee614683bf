"""Authentication and authorization of every request of the API and the pages.

Routes declare the required role by a parameter of type ``Reader``, ``Runner`` or ``Admin``, which is the principal::

    @router.post("/sweeps/{name}/stop")
    def stop(name: str, principal: Runner) -> ...: ...

A client sends its token as ``Authorization: Bearer``; a browser signs in with it once (``sign_in``) and gets a cookie.
Forms of a signed-in page must include ``form_token(request)``, in the field ``form_token`` or the header
``X-Form-Token``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Annotated, TypeVar

from fastapi import Depends, HTTPException, Request, Response, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from sweeps.config.access import Access
from sweeps.service.auth import browser_sessions as sessions
from sweeps.service.auth import tokens
from sweeps.service.auth.csrf import SAFE_METHODS, is_loopback_host
from sweeps.service.auth.permissions import LOCAL, Principal, Role
from sweeps.service.auth.rate_limits import RateLimits
from sweeps.service.auth.tokens import Token
from sweeps.service.clock import Clock
from sweeps.service.database.engine import writing
from sweeps.service.database.storage_errors import is_unavailable, outage
from sweeps.service.database.timeouts import waiting_at_most

NOT_SIGNED_IN = "send a valid token as `Authorization: Bearer sweeps_...`; `python -m sweeps token create` makes one"
NOT_OUR_FORM = "this form is not from a page of the service, or the page was opened before signing in; reload it"
COOKIE = "sweeps_session"
FORM_FIELD = "form_token"
FORM_HEADER = "x-form-token"
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
LOOKUP_THREADS = 4
"""Number of threads that look up tokens, separate from those of the routes, so that slow routes do not delay them."""
NOTE_USE_S = 0.5
"""Maximum seconds to wait for the database to record the use of a token; the request succeeds without the record."""

T = TypeVar("T")


class Authenticator:
    """Authenticates requests by token or session cookie. The application has it as ``app.state.authenticator``."""

    def __init__(self, database: Engine, access: Access, clock: Clock, *, loopback: bool) -> None:
        """Find tokens in the service's database. If only this machine can reach the service (``loopback``), they are
        required once one exists."""
        self.access = access
        self.rate_limits = RateLimits(access)
        self._database = database
        self._clock = clock
        self._requires_tokens = not loopback
        self._threads, self._failure = ThreadPoolExecutor(LOOKUP_THREADS, "authenticator"), _SharedFailure()

    async def requires_tokens(self) -> bool:
        """Whether a request without a token is refused; does not block the event loop."""
        return self._requires_tokens or await self._in_thread(lambda: self.requires_tokens_now)

    async def token_of(self, request: Request) -> Token | None:
        """Return the valid token of a request, or of its session cookie; looked up once per request."""
        if "sweeps_token" not in request.scope:
            secret, cookie = _secret_of(request), request.cookies.get(COOKIE)
            has_any = secret is not None or cookie is not None
            token = await self._in_thread(lambda: self.find_token(secret, cookie)) if has_any else None
            request.scope["sweeps_token"] = token
        found: Token | None = request.scope["sweeps_token"]
        return found

    async def is_authenticated(self, request: Request) -> bool:
        """Whether a request is authenticated, or needs no token."""
        return not await self.requires_tokens() or await self.token_of(request) is not None

    async def _in_thread(self, do: Callable[[], T]) -> T:
        call = partial(copy_context().run, self._failure.call, do, time.monotonic())
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    @property
    def requires_tokens_now(self) -> bool:
        """Whether a request without a token is refused; blocks for the database. Once true, it stays true."""
        if not self._requires_tokens:
            with self._database.connect() as connection:
                self._requires_tokens = tokens.any_made(connection)
        return self._requires_tokens

    def has_admin(self) -> bool:
        """Whether a valid admin token exists."""
        with self._database.connect() as connection:
            return tokens.admin_exists(connection, self._clock.now())

    def find_token(self, secret: str | None, cookie: str | None) -> Token | None:
        """Return the valid token with this secret, or of this session cookie."""
        if secret is not None and not tokens.PATTERN.fullmatch(secret):
            return None
        now = self._clock.now()
        with self._database.connect() as connection:
            token = None
            if secret is not None:
                token = tokens.find_valid(connection, secret, now)
            elif cookie is not None:
                token = sessions.find_token(connection, cookie, now)
        if token is not None and tokens.is_use_old(token, now):
            self._note_use(token, now)
        return token

    def _note_use(self, token: Token, now: float) -> None:
        """Record the time of a token's use; a storage outage does not fail the request."""
        try:
            with waiting_at_most(NOTE_USE_S), writing(self._database) as connection:
                tokens.note_use(connection, token, now)
        except DBAPIError as error:
            if not is_unavailable(error):
                raise
            outage.report(error, "the last use of a token")

    def begin_session(self, secret: str) -> str | None:
        """Begin a browser's session and return its cookie; None if the token is invalid."""
        token = self.find_token(secret.strip(), None)
        if token is None:
            return None  # before opening a write transaction, of which there is one at a time
        now = self._clock.now()
        with writing(self._database) as connection:
            token = tokens.find_valid_by_id(connection, token.id, now)
            return sessions.begin(connection, token, now, self.access.session_hours * 3600) if token else None

    def end_session(self, cookie: str) -> None:
        with writing(self._database) as connection:
            sessions.end(connection, cookie)


class _SharedFailure:
    """Shares the error of a failed database call with all threads that waited to make it, so that they do not time out
    one after another."""

    def __init__(self) -> None:
        self._last: tuple[Exception | None, float] = (None, 0.0)
        """The last error, and when it was raised."""

    def call(self, function: Callable[[], T], asked: float) -> T:
        """Call a function that needs the database, unless it has failed since the caller ``asked``: began to wait for
        its turn, by the monotonic clock."""
        last, failed = self._last
        if last is not None and failed > asked:
            raise last.with_traceback(None)
        try:
            return function()
        except Exception as error:
            if is_unavailable(error):
                self._last = (error, time.monotonic())
            raise


def sign_in(request: Request, response: Response, secret: str) -> bool:
    """Sign in a browser that sent a token, and set the cookie on the response; False if the token is invalid.

    Raises:
        HTTPException: Status 429, if the address has tried too often.
    """
    authenticator = authenticator_of(request)
    # First, so that guessing tokens costs nothing and reveals nothing.
    authenticator.rate_limits.check_refusals(address_of(request))
    cookie = authenticator.begin_session(secret)
    if cookie is None:
        authenticator.rate_limits.count_refusal(address_of(request))
        return False
    response.set_cookie(
        COOKIE,
        cookie,
        max_age=int(authenticator.access.session_hours * 3600),
        secure=not is_loopback_host(request.headers.get("host", "")),  # browsers do not send it over plain HTTP
        httponly=True,
        samesite="strict",
    )
    return True


def sign_out(request: Request, response: Response) -> None:
    """Sign out the browser and delete its cookie on the response."""
    cookie = request.cookies.get(COOKIE)
    if cookie is not None:
        authenticator_of(request).end_session(cookie)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")


def form_token(request: Request) -> str:
    """Return the CSRF token for a page's forms; empty without a session."""
    cookie = request.cookies.get(COOKIE)
    return "" if cookie is None else sessions.form_token(cookie)


def authenticator_of(request: Request) -> Authenticator:
    authenticator: Authenticator = request.app.state.authenticator
    return authenticator


def address_of(request: Request) -> str:
    """Return the address of the client, or of a proxy in front of it."""
    return request.client.host if request.client is not None else "unknown"


_bearer = HTTPBearer(auto_error=False, description="A token from `python -m sweeps token create`.")


async def authenticated(
    request: Request, _credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]
) -> Principal:
    """Authenticate a request and return its principal, of any role.

    Raises:
        HTTPException: Status 401 without a valid token, 403 for a form of another site, 429 for too many requests.
    """
    authenticator = authenticator_of(request)
    changes = request.method not in SAFE_METHODS
    if not await authenticator.requires_tokens():
        authenticator.rate_limits.count_request(address_of(request), changes=changes)
        return replace(LOCAL, address=address_of(request))
    token = await authenticator.token_of(request)
    if token is None:
        authenticator.rate_limits.count_refusal(address_of(request))
        raise HTTPException(401, NOT_SIGNED_IN, headers={"WWW-Authenticate": "Bearer"})
    authenticator.rate_limits.count_request(f"token {token.id}", changes=changes)
    cookie = request.cookies.get(COOKIE) if _secret_of(request) is None else None
    if changes and cookie is not None and not sessions.is_form_token(await _sent_form_token(request), cookie):
        raise HTTPException(403, NOT_OUR_FORM)
    return replace(token.principal, address=address_of(request))


def _secret_of(request: Request) -> str | None:
    """Return the token after ``Bearer``; None if there is none."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" and secret.strip() else None


async def _sent_form_token(request: Request) -> str:
    sent = request.headers.get(FORM_HEADER)
    if sent is None and request.headers.get("content-type", "").startswith(FORMS):
        sent = str((await request.form()).get(FORM_FIELD, ""))
    return sent or ""


def _requires(role: Role) -> Callable[[Principal], Principal]:
    def check(principal: Annotated[Principal, Depends(authenticated)]) -> Principal:
        if not principal.may(role):
            raise HTTPException(403, f"this requires a token with the role {role}; yours has {principal.role}")
        return principal

    return check


reader, runner, admin = _requires("read"), _requires("run"), _requires("admin")
Reader = Annotated[Principal, Depends(reader)]
"""Principal that may read the sweeps visible to it."""
Runner = Annotated[Principal, Depends(runner)]
"""Principal that may also start, stop and change sweeps."""
Admin = Annotated[Principal, Depends(admin)]
"""Principal with all rights to all sweeps."""


def scraper(principal: Annotated[Principal, Depends(authenticated)]) -> None:
    """Dependency of the metrics, which concern all users: for tokens of the role ``metrics``, and admins; others get
    status 403."""
    if principal.role not in ("metrics", "admin"):
        raise HTTPException(403, f"this requires a token with the role metrics; yours has {principal.role}")


def expensive(request: Request) -> Iterator[None]:
    """Dependency of slow routes, which limits how many run at once: ``dependencies=[Depends(expensive)]``."""
    with authenticator_of(request).rate_limits.expensive():
        yield
