"""Interactive documentation of the REST API: Swagger UI, from files of a package and under the pages' own content
security policy.

A request sent from the page acts as the page's user, with the session's cookie and the page's CSRF token, or with a
token that is entered under "Authorize".
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles

from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.pages import ReaderVisit

ADDRESS = "/api/docs"

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get(ADDRESS)
def documentation(visit: ReaderVisit) -> Response:
    """Page of the API's documentation."""
    return visit.answer("api.html")


def swagger_files() -> StaticFiles:
    """Swagger UI's own files, without importing the package, which would import Flask."""
    spec = find_spec("flask_swagger_ui")
    assert spec is not None
    assert spec.origin is not None
    return StaticFiles(directory=Path(spec.origin).parent / "dist")
