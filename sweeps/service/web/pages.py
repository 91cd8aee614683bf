"""State that all pages share (the list of sweeps, cached figures, links to MLflow and Ray), and a request for a page
with its user."""

from __future__ import annotations

import difflib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response

from sweeps.completion.conf_names import ConfNames
from sweeps.report.expected_cost import expected_cost
from sweeps.report.plan_summary import PlanPreview
from sweeps.service.app_context import AppContext
from sweeps.service.auth.auth import COOKIE, Reader, Runner, form_token
from sweeps.service.auth.permissions import LOCAL, Principal, project_of, visible
from sweeps.service.queue import jobs
from sweeps.service.record_cache import SweepLine
from sweeps.service.user_operations import UserOperations
from sweeps.service.web.error_pages import Answered
from sweeps.service.web.figure_cache import FigureCache
from sweeps.service.web.rendering import addresses, answer
from sweeps.service.web.sweep_rows import Row, rows_of
from sweeps.service.web.sweep_view import ExternalSites
from sweeps.tracking.mlflow_pages import server_address

ENDED_JOBS = 500
"""Number of the newest ended jobs that are searched for jobs without a sweep, such as those that failed before it
began. Older ones are in the API, ``GET jobs?before=NUMBER``."""
FRESH_S = 1.0
"""Maximum age of the list of jobs, in seconds."""


class Pages:
    """Shared state of the pages of one service."""

    def __init__(self, service: AppContext) -> None:
        self.service = service
        self.figures = FigureCache()
        self.conf_names = ConfNames(service.config_dirs)
        config = service.config
        mlflow = config.mlflow_url or server_address(config.tracking_uri)
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
        lines = self.service.records.sweeps(LOCAL).content  # all, filtered for each user below
        with self._lock:
            if self._lines is not lines or time.monotonic() - self._made >= FRESH_S:
                with self.service.database.connect() as connection:
                    self._rows = rows_of(lines, jobs.recent(connection, ENDED_JOBS))
                self._lines, self._made = lines, time.monotonic()
            rows = self._rows
        return [row for row in rows if visible(principal, row.owner)]

    def row(self, principal: Principal, name: str) -> Row | None:
        """Row of a sweep; None if the principal may not see a sweep of that name."""
        found = next((row for row in self.rows(principal) if row.sweep == name), None)
        if found is not None:
            return found
        with self.service.database.connect() as connection:
            older = jobs.of_sweep(connection, name)
        rows = rows_of([], older)
        return rows[0] if rows and visible(principal, rows[0].owner) else None

    def changed(self) -> None:
        """Discard the cached list after a change."""
        with self._lock:
            self._made = 0.0


@dataclass(frozen=True)
class Visit:
    """A request for a page, and the user who makes it."""

    request: Request
    pages: Pages
    principal: Principal
    mistake: str = ""
    """Reason why a change was not made, at the top of the page."""
    status: int = 200
    """Status of the response."""

    @property
    def service(self) -> AppContext:
        """State of the service that all requests share."""
        return self.pages.service

    @property
    def operations(self) -> UserOperations:
        return self.service.operations(self.principal)

    def row(self, name: str, *, recorded: bool = False) -> Row:
        """Row of a sweep, which must be in the store if ``recorded``.

        Raises:
            Answered: There is no such sweep, or the user may not see it.
        """
        row = self.pages.row(self.principal, name)
        if row is None or (recorded and not row.recorded):
            raise Answered(self.unknown(name))
        return row

    def redirect(self, address: str) -> Response:
        """Show another page after a change."""
        self.pages.changed()
        return RedirectResponse(address, 303)

    def failing(self, mistake: str, status: int = 422) -> Visit:
        """Return a copy of the visit whose page says at its top why a change was not made."""
        return replace(self, mistake=mistake, status=status)

    def answer(self, template: str, *, status: int | None = None, **context: Any) -> Response:
        """Render a page; ``rendering.answer`` has the arguments."""
        return answer(
            self.request,
            template,
            status=status or self.status,
            mistake=self.mistake,
            principal=self.principal,
            may_run=self.principal.may("run"),
            signed_in=COOKIE in self.request.cookies,
            form_token=form_token(self.request),
            address=addresses(self.request),
            **context,
        )

    def answer_form(
        self,
        template: str,
        *,
        conf: str,
        then: str,
        mistakes: Mapping[str, str],
        preview: PlanPreview | None,
        status: int = 422,
        **context: Any,
    ) -> Response:
        """Render a page with the form of a sweep or schedule, and the plan of the sweep (``preview``). ``then`` says
        what the form was posted for; ``status`` applies if there are mistakes, unless a person is still typing."""
        expected = None
        if preview is not None:
            expected = expected_cost(preview.work, self.service.records.past_sweeps(self.principal, conf))
        live = then == "preview"
        return self.answer(
            template,
            status=status if mistakes and not live else 200,
            confs=self.pages.conf_names.described(),
            mistakes=mistakes,
            preview=preview,
            expected=expected,
            default_project=project_of(self.principal, None),
            projects=self.principal.projects,
            live=live,
            **context,
        )

    def unknown(self, name: str) -> Response:
        """Page for a sweep that does not exist or is not visible, without saying which."""
        near = difflib.get_close_matches(name, [row.sweep for row in self.pages.rows(self.principal)], n=3, cutoff=0.5)
        text = f"There is no sweep {name!r}, or you may not see it."
        return self.answer("message.html", status=404, title="No such sweep", text=text, near=near)


def _of_reader(request: Request, principal: Reader) -> Visit:
    return Visit(request, request.app.state.pages, principal)


def _of_runner(request: Request, principal: Runner) -> Visit:
    return Visit(request, request.app.state.pages, principal)


ReaderVisit = Annotated[Visit, Depends(_of_reader)]
"""Visit of a user with read access."""
RunnerVisit = Annotated[Visit, Depends(_of_runner)]
"""Visit of a user who may start and change sweeps."""
