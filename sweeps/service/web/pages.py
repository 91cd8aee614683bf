"""State that all pages share: the list of sweeps, cached figures, and links to MLflow and Ray."""

from __future__ import annotations

import difflib
import threading
import time
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response

from sweeps.redact import without_credentials
from sweeps.service.app_context import AppContext
from sweeps.service.auth.auth import COOKIE, form_token
from sweeps.service.auth.principal import Principal, visible
from sweeps.service.queue import jobs
from sweeps.service.record_cache import SweepLine
from sweeps.service.web.figure_cache import FigureCache
from sweeps.service.web.past_sweeps import PastSweeps
from sweeps.service.web.rendering import answer
from sweeps.service.web.rows import Row, rows_of
from sweeps.service.web.sweep_view import ExternalSites

ENDED_JOBS = 500
"""Number of ended jobs in which the list looks for jobs without a sweep, such as those that failed before it began.
Older ones are in the API, ``GET jobs?before=NUMBER``."""
FRESH_S = 1.0
"""Maximum age of the list of jobs, in seconds."""
EVERYBODY = Principal("", "admin")
"""Principal that sees everything: the list is made once and filtered for each user."""


class Pages:
    """Shared state of the pages of one service."""

    def __init__(self, service: AppContext) -> None:
        self.service = service
        self.figures = FigureCache()
        self.past = PastSweeps(service.records)
        config = service.config
        server = config.tracking_uri if config.tracking_uri.startswith(("http://", "https://")) else None
        mlflow = config.mlflow_url or (server and without_credentials(server))
        self.sites = ExternalSites(mlflow=mlflow and mlflow.rstrip("/"), ray=config.ray_dashboard_url)
        self._lock = threading.Lock()
        self._lines: list[SweepLine] | None = None
        self._rows: list[Row] = []
        self._made = 0.0

    def rows(self, principal: Principal) -> list[Row]:
        """Sweeps and queued jobs that a principal may see.

        Raises:
            TrackingUnreachable: The store cannot be reached, and nothing is cached.
        """
        lines = self.service.records.sweeps(EVERYBODY).content
        with self._lock:
            if self._lines is not lines or time.monotonic() - self._made >= FRESH_S:
                with self.service.database.connect() as connection:
                    self._rows = rows_of(lines, jobs.recent(connection, ENDED_JOBS))
                self._lines, self._made = lines, time.monotonic()
            rows = self._rows
        return [row for row in rows if visible(principal, row.owner)]

    def row(self, principal: Principal, name: str) -> Row | None:
        """Row of a sweep; None if the principal may see none of that name."""
        found = next((row for row in self.rows(principal) if row.sweep == name), None)
        if found is not None:
            return found
        with self.service.database.connect() as connection:
            older = jobs.of_sweep(connection, name)
        rows = rows_of([], older)
        return rows[0] if rows and visible(principal, rows[0].owner) else None

    def trial_address(self, sweep: str, trial: str) -> str:
        """Address of a trial's page."""
        return f"/sweeps/{quote(sweep)}/trials/{trial}"

    def changed(self) -> None:
        """Discard the cached list after a change."""
        with self._lock:
            self._made = 0.0

    def redirect(self, address: str) -> Response:
        """Show another page after a change."""
        self.changed()
        return RedirectResponse(address, 303)

    def answer(self, request: Request, template: str, principal: Principal, **context: Any) -> Response:
        """Render a page for a principal."""
        more: dict[str, Any] = {"signed_in": COOKIE in request.cookies, "form_token": form_token(request)}
        return answer(request, template, principal=principal, **more, **context)

    def unknown(self, request: Request, principal: Principal, name: str) -> Response:
        """Page for a sweep that does not exist or is not visible; it does not say which."""
        near = difflib.get_close_matches(name, [row.sweep for row in self.rows(principal)], n=3, cutoff=0.5)
        text = f"There is no sweep {name!r}, or you may not see it."
        return self.answer(request, "message.html", principal, status=404, title="No such sweep", text=text, near=near)


def _pages(request: Request) -> Pages:
    pages: Pages = request.app.state.pages
    return pages


Shared = Annotated[Pages, Depends(_pages)]
"""Type of the routes' argument."""
