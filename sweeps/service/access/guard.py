"""The guard before every request of the API and the pages: who asks, and whether they may.

Routes say whom they are for by one of ``Reader``, ``Runner`` and ``Admin``; each of them is the caller::

    @router.post("/sweeps/{name}/stop")
    def stop(name: str, caller: Runner) -> ...: ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, HTTPException, Request, Security
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import Engine

from sweeps.config.access import Access
from sweeps.service.access import tokens
from sweeps.service.access.caller import LOCAL, Caller, Role
from sweeps.service.clock import Clock
from sweeps.service.database import writing

NOT_SIGNED_IN = (
    "give a token that is good, as `Authorization: Bearer sweeps_...`; an admin makes one with `token create`"
)


class Guard:
    """Knows callers. ``app.state.guard`` holds it."""

    def __init__(self, database: Engine, access: Access, clock: Clock, *, loopback: bool) -> None:
        """
        Args:
            database: Which has the tokens.
            access: What is allowed.
            clock: By which tokens expire.
            loopback: Whether only this machine can reach the service: as long as it has no tokens, it demands none.
        """
        self.access = access
        self._database = database
        self._clock = clock
        self._loopback = loopback
        self._closed = not loopback

    @property
    def demands_tokens(self) -> bool:
        """Whether a caller without one is refused. Once it does, it always does."""
        if not self._closed:
            with self._database.connect() as connection:
                self._closed = tokens.any_made(connection)
        return self._closed

    def holder(self, secret: str) -> Caller | None:
        """Who holds a token, if it is good."""
        now = self._clock.now()
        with self._database.connect() as connection:
            token = tokens.holder(connection, secret, now)
        if token is None:
            return None
        if tokens.is_use_old(token, now):
            with writing(self._database) as connection:
                tokens.note_use(connection, token, now)
        return token.caller


_bearer = HTTPBearer(auto_error=False, description="A token from `python -m sweeps token create`.")


async def _known(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]
) -> Caller:
    guard: Guard = request.app.state.guard
    if not await run_in_threadpool(lambda: guard.demands_tokens):
        return LOCAL
    caller = None if credentials is None else await run_in_threadpool(guard.holder, credentials.credentials)
    if caller is None:
        raise HTTPException(401, NOT_SIGNED_IN, headers={"WWW-Authenticate": "Bearer"})
    return caller


def _with(role: Role) -> Callable[[Caller], Caller]:
    def check(caller: Annotated[Caller, Depends(_known)]) -> Caller:
        if not caller.may(role):
            raise HTTPException(403, f"this takes a token with the role {role}; yours is {caller.role}")
        return caller

    return check


reader, runner, admin = _with("read"), _with("run"), _with("admin")
Reader = Annotated[Caller, Depends(reader)]
"""May look at their sweeps."""
Runner = Annotated[Caller, Depends(runner)]
"""May also start, stop and change them."""
Admin = Annotated[Caller, Depends(admin)]
"""May do everything, to everybody's sweeps."""
