"""The guard before every request of the API and the pages: who asks, and whether they may.

Routes say whom they are for by one of ``Reader``, ``Runner`` and ``Admin``; each of them is the principal::

    @router.post("/sweeps/{name}/stop")
    def stop(name: str, principal: Runner) -> ...: ...

A token comes as ``Authorization: Bearer``; a browser signs in with it once (``sign_in``), and has a cookie instead.
What a signed-in page sends must carry ``form_token(request)``, as the form's field ``form_token`` or the header
``X-Form-Token``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Annotated, TypeVar

from fastapi import Depends, HTTPException, Request, Response, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from sweeps.config.access import Access
from sweeps.service.auth import sessions, tokens
from sweeps.service.auth.csrf import SAFE_METHODS, is_loopback_host
from sweeps.service.auth.principal import LOCAL, Principal, Role
from sweeps.service.auth.rate_limits import RateLimits
from sweeps.service.auth.tokens import Token
from sweeps.service.clock import Clock
from sweeps.service.database.engine import writing
from sweeps.service.database.storage_errors import is_unavailable, outage

NOT_SIGNED_IN = "give a good token, as `Authorization: Bearer sweeps_...`; `python -m sweeps token create` makes one"
NOT_OUR_FORM = "this did not come from a page of the service, or from one that was opened before signing in; reload it"
COOKIE = "sweeps_session"
FORM_FIELD = "form_token"
FORM_HEADER = "x-form-token"
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
LOOKING = 4
"""Threads that look tokens up. They are the guard's own: routes that take long keep nobody from being known."""

T = TypeVar("T")


class Authenticator:
    """Knows callers. ``app.state.authenticator`` holds it."""

    def __init__(self, database: Engine, access: Access, clock: Clock, *, loopback: bool) -> None:
        """
        Args:
            database: Which has the tokens.
            access: What is allowed.
            clock: By which tokens expire.
            loopback: Whether only this machine can reach the service: as long as it has no tokens, it demands none.
        """
        self.access = access
        self.rate_limits = RateLimits(access)
        self._database = database
        self._clock = clock
        self._closed = not loopback
        self._threads = ThreadPoolExecutor(LOOKING, "guard")

    async def is_closed(self) -> bool:
        """``demands_tokens``, without a wait for the database in the event loop."""
        return self._closed or await self._aside(lambda: self.demands_tokens)

    async def token_of(self, request: Request) -> Token | None:
        """The good token that a request has, or for which its cookie stands. It is looked up once for a request."""
        if "sweeps_token" not in request.scope:
            secret, cookie = _secret_of(request), request.cookies.get(COOKIE)
            has_any = secret is not None or cookie is not None
            token = await self._aside(lambda: self.holder(secret, cookie)) if has_any else None
            request.scope["sweeps_token"] = token
        found: Token | None = request.scope["sweeps_token"]
        return found

    async def knows(self, request: Request) -> bool:
        """Whether a request comes from somebody who may ask anything at all."""
        return not await self.is_closed() or await self.token_of(request) is not None

    async def _aside(self, do: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, do)

    @property
    def demands_tokens(self) -> bool:
        """Whether a principal without one is refused. Once it does, it always does."""
        if not self._closed:
            with self._database.connect() as connection:
                self._closed = tokens.any_made(connection)
        return self._closed

    def has_admin(self) -> bool:
        """Whether somebody holds a good token with which the service can be managed."""
        with self._database.connect() as connection:
            return tokens.admin_exists(connection, self._clock.now())

    def holder(self, secret: str | None, cookie: str | None) -> Token | None:
        """The good token that a request has, or for which its cookie stands."""
        if secret is not None and not tokens.PATTERN.fullmatch(secret):
            return None
        now = self._clock.now()
        with self._database.connect() as connection:
            token = None
            if secret is not None:
                token = tokens.holder(connection, secret, now)
            elif cookie is not None:
                token = sessions.holder(connection, cookie, now)
        if token is not None and tokens.is_use_old(token, now):
            self._note_use(token, now)
        return token

    def _note_use(self, token: Token, now: float) -> None:
        """When it was last used; not where the storage takes nothing now, as the token is good all the same."""
        try:
            with writing(self._database) as connection:
                tokens.note_use(connection, token, now)
        except DBAPIError as error:
            if not is_unavailable(error):
                raise
            outage.report(error, "the use of a token")

    def begin_session(self, secret: str) -> str | None:
        """The cookie of a browser that signs in; None if the token is not good."""
        token = self.holder(secret.strip(), None)
        if token is None:
            return None  # without a transaction that writes: they wait for each other
        now = self._clock.now()
        with writing(self._database) as connection:
            token = tokens.numbered(connection, token.id, now)
            return sessions.begin(connection, token, now, self.access.session_hours * 3600) if token else None

    def end_session(self, cookie: str) -> None:
        """Sign a browser out."""
        with writing(self._database) as connection:
            sessions.end(connection, cookie)


def sign_in(request: Request, response: Response, secret: str) -> bool:
    """Sign the browser in that sent a token; the response gets its cookie. False if the token is not good.

    Raises:
        HTTPException: 429, when an address tries too often.
    """
    authenticator = authenticator_of(request)
    authenticator.rate_limits.check_refusals(
        address_of(request)
    )  # first: whoever guesses learns nothing more, and costs nothing
    cookie = authenticator.begin_session(secret)
    if cookie is None:
        authenticator.rate_limits.count_refusal(address_of(request))
        return False
    response.set_cookie(
        COOKIE,
        cookie,
        max_age=int(authenticator.access.session_hours * 3600),
        secure=not is_loopback_host(request.headers.get("host", "")),  # browsers keep it off plain HTTP elsewhere
        httponly=True,
        samesite="strict",
    )
    return True


def sign_out(request: Request, response: Response) -> None:
    """Sign the browser out; the response takes its cookie away."""
    cookie = request.cookies.get(COOKIE)
    if cookie is not None:
        authenticator_of(request).end_session(cookie)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")


def form_token(request: Request) -> str:
    """What the page's forms carry in the field ``form_token``; empty where no browser signs in."""
    cookie = request.cookies.get(COOKIE)
    return "" if cookie is None else sessions.form_token(cookie)


def authenticator_of(request: Request) -> Authenticator:
    """The service's guard."""
    authenticator: Authenticator = request.app.state.authenticator
    return authenticator


def address_of(request: Request) -> str:
    """Of whoever is at the other end of the connection: their machine, or a proxy."""
    return request.client.host if request.client is not None else "unknown"


_bearer = HTTPBearer(auto_error=False, description="A token from `python -m sweeps token create`.")


async def known(
    request: Request, _credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]
) -> Principal:
    """Whoever asks, whatever they may do.

    Raises:
        HTTPException: 401, if nobody knows them; 403, if another site sent their browser; 429, if they ask too often.
    """
    authenticator = authenticator_of(request)
    changes = request.method not in SAFE_METHODS
    if not await authenticator.is_closed():
        authenticator.rate_limits.count_request(address_of(request), changes=changes)
        return LOCAL
    token = await authenticator.token_of(request)
    if token is None:
        authenticator.rate_limits.count_refusal(address_of(request))
        raise HTTPException(401, NOT_SIGNED_IN, headers={"WWW-Authenticate": "Bearer"})
    authenticator.rate_limits.count_request(f"token {token.id}", changes=changes)
    cookie = request.cookies.get(COOKIE) if _secret_of(request) is None else None
    if changes and cookie is not None and not sessions.is_form_token(await _sent_form_token(request), cookie):
        raise HTTPException(403, NOT_OUR_FORM)
    return token.principal


def _secret_of(request: Request) -> str | None:
    """The token after ``Bearer``; None if there is none."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" and secret.strip() else None


async def _sent_form_token(request: Request) -> str:
    sent = request.headers.get(FORM_HEADER)
    if sent is None and request.headers.get("content-type", "").startswith(FORMS):
        sent = str((await request.form()).get(FORM_FIELD, ""))
    return sent or ""


def _with(role: Role) -> Callable[[Principal], Principal]:
    def check(principal: Annotated[Principal, Depends(known)]) -> Principal:
        if not principal.may(role):
            raise HTTPException(403, f"this takes a token with the role {role}; yours is {principal.role}")
        return principal

    return check


reader, runner, admin = _with("read"), _with("run"), _with("admin")
Reader = Annotated[Principal, Depends(reader)]
"""May look at their sweeps."""
Runner = Annotated[Principal, Depends(runner)]
"""May also start, stop and change them."""
Admin = Annotated[Principal, Depends(admin)]
"""May do everything, to everybody's sweeps."""


def expensive(request: Request) -> Iterator[None]:
    """For routes that take long, of which only a few are answered at once: ``dependencies=[Depends(expensive)]``."""
    with authenticator_of(request).rate_limits.expensive():
        yield
