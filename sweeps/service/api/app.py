"""The web application: routes of the API and the pages, and the responses to errors."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from sweeps.compose.schema_errors import plain_words
from sweeps.errors import Conflict, SweepsError, TimeLimitExceeded, TrackingUnreachable, UnknownName, UserError
from sweeps.service.api import administration, health, queue, results, schedules, sweeps
from sweeps.service.api.depends import Problem, check_parameters
from sweeps.service.auth.auth import reader, scraper
from sweeps.service.auth.middleware import SecurityMiddleware
from sweeps.service.database.storage_errors import RETRY_AFTER_S
from sweeps.service.metrics import CONTENT_TYPE, ServiceCollector, exposition
from sweeps.service.web.app import add_pages

if TYPE_CHECKING:
    from sweeps.service.app_context import AppContext

PREFIX = "/api/v1"
RESOURCES: tuple[APIRouter, ...] = (
    health.router,
    sweeps.router,
    results.router,
    queue.router,
    schedules.router,
    administration.router,
)
MAX_MISTAKES = 50
"""Maximum number of validation errors in a response."""
PROBLEMS = (401, 403, 404, 409, 422, 503, 504)
STATUS = {TrackingUnreachable: 503, TimeLimitExceeded: 504, UnknownName: 404, Conflict: 409, UserError: 422}
"""HTTP status of each error class; the last one is the base class of the others."""

logger = logging.getLogger(__name__)


def make_app(service: AppContext) -> FastAPI:
    """Return the application of a service, which routes find as ``request.app.state.service``."""
    app = _make_api()
    app.state.service = service
    app.state.authenticator = service.authenticator
    app.add_exception_handler(SweepsError, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_middleware(SecurityMiddleware, authenticator=service.authenticator, own=[service.config.public_url or ""])
    add_pages(app, service)

    @app.get(f"{PREFIX}/openapi.json", include_in_schema=False, dependencies=[Depends(reader)])
    def document() -> dict[str, Any]:
        """The OpenAPI document of the API."""
        return app.openapi()

    collector = ServiceCollector(service.database, service.clock, service.heartbeat, service.records)

    @app.get("/metrics", include_in_schema=False, dependencies=[Depends(scraper)])
    def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(exposition(collector), media_type=CONTENT_TYPE)

    return app


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of the API without starting a service."""
    return _make_api().openapi()


def _make_api() -> FastAPI:
    app = FastAPI(
        title="Sweeps",
        version=version("ray-sweeps"),
        description="Hyperparameter search for distributed training: what the command line does, over HTTP.",
        openapi_url=None,  # see `document`, which requires the role read
        docs_url=None,  # its page loads scripts from other sites; see `web.router.api_documentation`
        redoc_url=None,
    )
    for router in RESOURCES:
        checks = [] if router is health.router else [Depends(check_parameters)]  # its routes need no token
        app.include_router(
            router, prefix=PREFIX, dependencies=checks, responses={status: {"model": Problem} for status in PROBLEMS}
        )
    return app


async def _answer_error(request: Request, error: Exception) -> JSONResponse:
    """Answer an error with the message that the command line prints."""
    status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), None)
    if status is None:
        logger.error("%s %s: %s", request.method, request.url.path, error)
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else None
    return JSONResponse({"detail": str(error)}, status or 409, headers)


async def _answer_invalid(_request: Request, error: Exception) -> JSONResponse:
    """Answer an invalid request, without its values, which may be secrets or not representable in JSON."""
    assert isinstance(error, RequestValidationError)
    lines = [f"{'.'.join(map(str, each['loc']))}: {_mistake(each)}" for each in error.errors()[:MAX_MISTAKES]]
    return JSONResponse({"detail": "\n".join(lines)}, 422)


def _mistake(detail: Mapping[str, Any]) -> str:
    """Return the words of one of pydantic's errors, as for a mistake in a config."""
    match detail["type"]:
        case "extra_forbidden":
            return "there is no such key"
        case "missing":
            return "is required"
    return plain_words(detail["msg"])
