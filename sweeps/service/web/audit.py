"""Page of the audit log, for admins."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from sweeps.service.api.administration import AuditPosition, AuditWords
from sweeps.service.auth.auth import admin
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.pages import ReaderVisit
from sweeps.service.web.paging import ROWS

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/audit", dependencies=[Depends(admin)])
def audit(visit: ReaderVisit, q: AuditWords = "", before: AuditPosition = None) -> Response:
    """Changes that users have made, newest first."""
    entries, following = visit.service.audit.read(ROWS, before, q)
    return visit.answer("audit.html", here="Audit", entries=entries, q=q, following=following, before=before)
