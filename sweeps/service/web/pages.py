"""What all pages share: what there is to see, for whom, and how it is shown."""

from __future__ import annotations

import difflib
import threading
import time
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import Response

from sweeps.redact import without_credentials
from sweeps.service.app_context import AppContext
from sweeps.service.auth.auth import COOKIE, form_token
from sweeps.service.auth.principal import Principal, visible
from sweeps.service.queue import jobs
from sweeps.service.record_cache import SweepLine
from sweeps.service.web.learning_curves_svg import ChartCache
from sweeps.service.web.rendering import answer
from sweeps.service.web.rows import Row, rows_of
from sweeps.service.web.sweep_view import Elsewhere

ENDED_JOBS = 500
"""Jobs that have ended among which the list looks for those without a sweep: such as failed before they began. Older
ones are in the API, ``GET jobs?before=NUMBER``."""
FRESH_S = 1.0
"""How old the queue may be that is shown."""
EVERYBODY = Principal("", "admin")
"""Who sees all: the list is made once, and each principal gets their part of it."""


class Pages:
    """One for a service."""

    def __init__(self, service: AppContext) -> None:
        self.service = service
        self.charts = ChartCache()
        config = service.config
        server = config.tracking_uri if config.tracking_uri.startswith(("http://", "https://")) else None
        mlflow = config.mlflow_url or (server and without_credentials(server))
        self.elsewhere = Elsewhere(mlflow=mlflow and mlflow.rstrip("/"), ray=config.ray_dashboard_url)
        self._lock = threading.Lock()
        self._lines: list[SweepLine] | None = None
        self._rows: list[Row] = []
        self._made = 0.0

    def rows(self, principal: Principal) -> list[Row]:
        """All sweeps that there are for a principal, and what is to become one.

        Raises:
            TrackingUnreachable: The store is away, and nothing was seen before.
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
        """A sweep; None if there is none of that name for the principal."""
        found = next((row for row in self.rows(principal) if row.sweep == name), None)
        if found is not None:
            return found
        with self.service.database.connect() as connection:
            older = jobs.of_sweep(connection, name)
        rows = rows_of([], older)
        return rows[0] if rows and visible(principal, rows[0].owner) else None

    def changed(self) -> None:
        """Somebody has changed something: who looks next sees that."""
        with self._lock:
            self._made = 0.0

    def answer(self, request: Request, template: str, principal: Principal, **context: Any) -> Response:
        """A page for somebody."""
        more: dict[str, Any] = {"signed_in": COOKIE in request.cookies, "form_token": form_token(request)}
        return answer(request, template, principal=principal, **more, **context)

    def unknown(self, request: Request, principal: Principal, name: str) -> Response:
        """There is no such sweep, or not for this principal: which of both is not told."""
        near = difflib.get_close_matches(name, [row.sweep for row in self.rows(principal)], n=3, cutoff=0.5)
        text = f"There is no sweep {name!r}, or it is not one of yours."
        return self.answer(request, "message.html", principal, status=404, title="No such sweep", text=text, near=near)


def _pages(request: Request) -> Pages:
    pages: Pages = request.app.state.pages
    return pages


Shared = Annotated[Pages, Depends(_pages)]
"""What routes take."""
