"""Signing in with a token, where the service demands one, and out again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, HTTPException, Query, Request
from fastapi.responses import RedirectResponse, Response

from sweeps.service.auth.auth import Reader, authenticator_of, sign_in, sign_out
from sweeps.service.web.error_pages import SIGN_IN, PageRoute
from sweeps.service.web.rendering import answer

router = APIRouter(include_in_schema=False, route_class=PageRoute)

NOT_GOOD = "This token is not good: it has expired, was revoked, or was not copied whole."
TOO_OFTEN = "There were too many wrong tokens from your address: wait a minute, and try again."
Next = Annotated[str, Query(max_length=2000)]


@router.get(SIGN_IN)
def form(request: Request, next: Next = "/") -> Response:  # noqa: A002 - as addresses call it
    """Where a token is asked for."""
    if not authenticator_of(request).demands_tokens:
        return RedirectResponse("/", 303)
    return answer(request, "sign_in.html", next=_own(next), mistake="")


@router.post(SIGN_IN)
def enter(
    request: Request,
    token: Annotated[str, Form(max_length=500)],
    next: Annotated[str, Form(max_length=2000)] = "/",  # noqa: A002 - as addresses call it
) -> Response:
    """Begin a session."""
    response = RedirectResponse(_own(next), 303)
    try:
        if sign_in(request, response, token):
            return response
        mistake, status = NOT_GOOD, 401
    except HTTPException as error:
        mistake, status = TOO_OFTEN, error.status_code
    return answer(request, "sign_in.html", status=status, next=_own(next), mistake=mistake)


@router.post("/sign-out")
def leave(request: Request, _caller: Reader) -> Response:
    """End it."""
    response = RedirectResponse(SIGN_IN, 303)
    sign_out(request, response)
    return response


def _own(address: str) -> str:
    """An address on these pages; the first page for any other, since a link may have brought it from anywhere."""
    plain = address.startswith("/") and not address.startswith("//") and "\\" not in address
    return address if plain and address.isprintable() else "/"
