"""What all pages share: what there is to see, for whom, and how it is shown."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from sweeps.config.service import Service
from sweeps.credentials import shown
from sweeps.service.access.caller import Caller, visible
from sweeps.service.page.rendering import answer
from sweeps.service.page.rows import Row, rows_of
from sweeps.service.page.seen import Seen
from sweeps.service.page.sight import Sight
from sweeps.service.page.sweep_view import Elsewhere


class Pages:
    """One for a service."""

    def __init__(self, settings: Service, look: Callable[[], Seen]) -> None:
        """
        Args:
            settings: Of the service.
            look: What was last seen; cheap.
        """
        self.settings = settings
        self.sight = Sight(settings.tracking_uri)
        uri = settings.tracking_uri if settings.tracking_uri.startswith(("http://", "https://")) else None
        mlflow = settings.mlflow_url or (shown(uri) if uri else None)
        self.elsewhere = Elsewhere(mlflow=mlflow and mlflow.rstrip("/"), ray=settings.ray_dashboard_url)
        self._look = look
        self._lock = threading.Lock()
        self._of: Seen | None = None
        self._rows: list[Row] = []

    @property
    def seen(self) -> Seen:
        return self._look()

    def rows(self, caller: Caller) -> list[Row]:
        """All sweeps that there are for a caller; made once of what was seen, for all who look."""
        seen = self._look()
        with self._lock:
            if self._of is not seen:
                self._of, self._rows = seen, rows_of(seen.sweeps, seen.jobs)
            rows = self._rows
        return [row for row in rows if visible(caller, row.owner)]

    def row(self, caller: Caller, name: str) -> Row | None:
        """A sweep; None if there is none of that name for the caller."""
        return next((row for row in self.rows(caller) if row.sweep == name), None)

    def message(
        self, request: Request, caller: Caller | None, status: int, title: str, text: str, **more: Any
    ) -> Response:
        """A page that says one thing."""
        more = {"near": [], "back": "", **more}
        return answer(request, "message.html", status=status, caller=caller, title=title, text=text, **more)

    def answer(self, request: Request, template: str, caller: Caller, **context: Any) -> Response:
        """A page for who is signed in."""
        return answer(request, template, caller=caller, **context)
