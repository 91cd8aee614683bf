"""Adds the pages to the service's application."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles

from sweeps.service.web import (
    action_routes,
    compare,
    figures,
    plotly_library,
    router,
    schedule_editing,
    schedules,
    sign_in,
    submit,
)
from sweeps.service.web import trial_page as trial
from sweeps.service.web.documentation import ADDRESS, documentation
from sweeps.service.web.pages import Pages
from sweeps.service.web.plotly_library import CACHEABLE
from sweeps.service.web.rendering import DOCS, STATIC

if TYPE_CHECKING:
    from sweeps.service.app_context import AppContext


def add_pages(app: FastAPI, service: AppContext) -> None:
    app.state.pages = Pages(service)
    app.mount("/static/swagger", _swagger_files(), name="swagger")
    app.mount("/static", _KeptFiles(directory=STATIC), name="static")
    if (folder := documentation(service.config.docs_dir)) is not None:
        app.mount(ADDRESS, StaticFiles(directory=folder, html=True), name=DOCS)
    lists = (router, trial, figures, plotly_library, compare, schedules)
    for part in (*lists, action_routes, submit, schedule_editing, sign_in):
        app.include_router(part.router)


def _swagger_files() -> StaticFiles:
    """Return Swagger UI's own files, without importing their package, which would import Flask."""
    spec = find_spec("flask_swagger_ui")
    assert spec is not None
    assert spec.origin is not None
    return StaticFiles(directory=Path(spec.origin).parent / "dist")


class _KeptFiles(StaticFiles):
    """Static files that browsers may cache, since their addresses change with their contents."""

    def file_response(self, *arguments: Any, **named: Any) -> Response:
        response = super().file_response(*arguments, **named)
        response.headers["Cache-Control"] = CACHEABLE
        return response
