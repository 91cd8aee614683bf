"""Mistakes on the way to a page are pages themselves, or lead to where one signs in."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlencode

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from fastapi.routing import APIRoute
from sqlalchemy.exc import DBAPIError

from sweeps.errors import SweepsError, TrackingUnreachable, UnknownName
from sweeps.service.database.storage_errors import RETRY_AFTER_S, first_line, is_unavailable, outage
from sweeps.service.web.rendering import answer

SIGN_IN = "/sign-in"


class PageRoute(APIRoute):
    """Answers a person, where the API would answer a program."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """As FastAPI asks for it."""
        handle = super().get_route_handler()

        async def handle_or_tell(request: Request) -> Response:
            try:
                return await handle(request)
            except (HTTPException, RequestValidationError, SweepsError) as error:
                return _told(request, error)
            except DBAPIError as error:
                if not is_unavailable(error):
                    raise
                outage.report(error, f"{request.method} {request.url.path}")
                text = f"The service's storage does not work now ({first_line(error)}); try again when it does."
                found = message(request, 503, "The service cannot answer now", text)
                found.headers["Retry-After"] = str(RETRY_AFTER_S)
                return found

        return handle_or_tell


def _told(request: Request, error: Exception) -> Response:
    match error:
        case HTTPException(status_code=401):
            return _to_sign_in(request)
        case HTTPException():
            title = "Not so much at once" if error.status_code == 429 else "This is not for you"
            found = message(request, error.status_code, title, str(error.detail))
            found.headers.update(error.headers or {})
            return found
        case RequestValidationError():
            mistakes = [f"{each['loc'][-1]}: {each['msg']}" for each in error.errors()[:50]]
            return message(request, 422, "This cannot be", "\n".join(mistakes))
        case TrackingUnreachable():
            return message(request, 503, "The store does not answer", f"{error}; try again when it does.")
        case UnknownName():
            return message(request, 404, "There is no such thing", str(error))
    return message(request, 422, "This cannot be done", str(error))


def message(request: Request, status: int, title: str, text: str) -> Response:
    """A page that says one thing."""
    return answer(request, "message.html", status=status, title=title, text=text)


def _to_sign_in(request: Request) -> Response:
    if request.method != "GET":
        return RedirectResponse(SIGN_IN, 303)
    asked = {key: value for key, value in request.query_params.items() if key != "part"}
    where = request.url.path + (f"?{urlencode(asked)}" if asked else "")
    return RedirectResponse(f"{SIGN_IN}?{urlencode({'next': where})}", 303)
