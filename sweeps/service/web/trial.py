"""Page of one trial: its parameters and times, the errors of its attempts, and the end of its logs."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import Response

from sweeps.plan import export
from sweeps.report.trial import trial_document
from sweeps.service.api.trials import TrialId
from sweeps.service.auth.auth import Reader
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.pages import Shared

router = APIRouter(include_in_schema=False, route_class=PageRoute)

LINES = 200
"""Number of lines from the end of each worker's log."""


@router.get("/sweeps/{name}/trials/{trial}")
def trial(request: Request, pages: Shared, principal: Reader, name: str, trial: TrialId) -> Response:
    """Page of one trial."""
    row = pages.row(principal, name)
    if row is None or not row.recorded:
        return pages.unknown(request, principal, name)
    record = pages.service.records.sweep(principal, name)
    document = trial_document(record, export.choose(record, trial), LINES)
    values = document["value"] if isinstance(document["value"], list) else [document["value"]]
    return pages.answer(
        request,
        "trial.html",
        principal,
        here="Sweeps",
        trial=document,
        values=list(zip(document["metric"], values, strict=False)),
        back=f"/sweeps/{quote(name)}",
    )
