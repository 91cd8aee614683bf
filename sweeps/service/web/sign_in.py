"""Sign-in with a token, if the service requires one, and sign-out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, HTTPException, Query, Request
from fastapi.responses import RedirectResponse, Response

from sweeps.service.auth.auth import Reader, authenticator_of, sign_in, sign_out
from sweeps.service.auth.middleware import SIGN_IN
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.rendering import answer

router = APIRouter(include_in_schema=False, route_class=PageRoute)

REFUSED = "This token is not valid: it is incomplete, has expired, or was revoked."
TOO_OFTEN = "Too many wrong tokens came from your address: wait a minute, and try again."
Next = Annotated[str, Query(max_length=2000)]


@router.get(SIGN_IN)
def form(request: Request, next: Next = "/") -> Response:  # noqa: A002 - as addresses call it
    if not authenticator_of(request).requires_tokens_now:
        return RedirectResponse("/", 303)
    return answer(request, "sign_in.html", next=_own_page(next), mistake="")


@router.post(SIGN_IN)
def enter(
    request: Request,
    token: Annotated[str, Form(max_length=500)],
    next: Annotated[str, Form(max_length=2000)] = "/",  # noqa: A002 - as addresses call it
) -> Response:
    """Start a session."""
    response = RedirectResponse(_own_page(next), 303)
    try:
        if sign_in(request, response, token):
            return response
        mistake, status = REFUSED, 401
    except HTTPException as error:
        mistake, status = TOO_OFTEN, error.status_code
    return answer(request, "sign_in.html", status=status, next=_own_page(next), mistake=mistake)


@router.post("/sign-out")
def leave(request: Request, _caller: Reader) -> Response:
    """End the session."""
    response = RedirectResponse(SIGN_IN, 303)
    sign_out(request, response)
    return response


def _own_page(address: str) -> str:
    """Return the address if it is a page of the service, otherwise the first page; the address may come from a link on
    another site."""
    plain = address.startswith("/") and not address.startswith("//") and "\\" not in address
    return address if plain and address.isprintable() else "/"
