"""Error pages, and the redirect to the sign-in page."""

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
from sweeps.service.auth.middleware import SIGN_IN
from sweeps.service.database.storage_errors import RETRY_AFTER_S, first_line, is_unavailable, outage
from sweeps.service.web.rendering import answer


class Answered(Exception):
    """Raised with the response to a request whose page cannot be shown."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


class PageRoute(APIRoute):
    """Route that answers errors with pages instead of JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_with_error_page(request: Request) -> Response:
            try:
                return await handle(request)
            except Answered as answered:
                return answered.response
            except (HTTPException, RequestValidationError, SweepsError) as error:
                return _error_page(request, error)
            except DBAPIError as error:
                if not is_unavailable(error):
                    raise
                outage.report(error, f"{request.method} {request.url.path}")
                text = f"The service's storage does not work now ({first_line(error)}); try again when it does."
                return _unavailable(request, "The service is unavailable", text)

        return handle_with_error_page


def _error_page(request: Request, error: Exception) -> Response:
    match error:
        case HTTPException(status_code=401):
            return _to_sign_in(request)
        case HTTPException():
            title = "Too many requests" if error.status_code == 429 else "Not allowed"
            found = message(request, error.status_code, title, str(error.detail))
            found.headers.update(error.headers or {})
            return found
        case RequestValidationError():
            mistakes = [f"{each['loc'][-1]}: {each['msg']}" for each in error.errors()[:50]]
            return message(request, 422, "Invalid input", "\n".join(mistakes))
        case TrackingUnreachable():
            return _unavailable(request, "The store cannot be reached", f"{error}; try again when it does.")
        case UnknownName():
            return message(request, 404, "Not found", str(error))
    return message(request, 422, "Not possible", str(error))


def _unavailable(request: Request, title: str, text: str) -> Response:
    found = message(request, 503, title, text)
    found.headers["Retry-After"] = str(RETRY_AFTER_S)
    return found


def message(request: Request, status: int, title: str, text: str) -> Response:
    return answer(request, "message.html", status=status, title=title, text=text)


def _to_sign_in(request: Request) -> Response:
    if request.method != "GET":
        return RedirectResponse(SIGN_IN, 303)
    query = {key: value for key, value in request.query_params.items() if key != "part"}
    where = request.url.path + (f"?{urlencode(query)}" if query else "")
    return RedirectResponse(f"{SIGN_IN}?{urlencode({'next': where})}", 303)
