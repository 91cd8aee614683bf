"""Single trials: document and worker logs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query

from sweeps.plan import export
from sweeps.report.trial_details import trial_document
from sweeps.service.api.depends import Name, Serving
from sweeps.service.api.schema import Document
from sweeps.service.auth.auth import Reader, expensive
from sweeps.tracking.trial_logs import LogPart, TrialLogs

router = APIRouter(tags=["sweeps"])

TrialId = Annotated[str, Path(description="Number of a trial.", pattern=r"^[0-9]{1,9}(r[0-9]{1,2})?$")]
Worker = Annotated[int, Path(description="Rank of a worker.", ge=0, lt=1_000_000)]
Position = Annotated[int, Query(description="Start: 0, or `position` of the previous part.", ge=0, lt=2**60)]


class LogWorkers(Document):
    """Workers that have a log."""

    workers: list[int]
    """Ranks of the workers."""


@router.get("/sweeps/{name}/trials/{trial}")
def show(service: Serving, principal: Reader, name: Name, trial: TrialId) -> dict[str, Any]:
    """A trial with the end of its logs: the document of ``show --trial --json``."""
    record = service.records.sweep(principal, name)
    return trial_document(record, export.choose(record, trial))


@router.get("/sweeps/{name}/trials/{trial}/logs")
def logs(service: Serving, principal: Reader, name: Name, trial: TrialId) -> LogWorkers:
    """Workers of a trial that have a log."""
    record = service.records.sweep(principal, name)
    return LogWorkers(workers=TrialLogs(record, export.choose(record, trial)).workers())


@router.get("/sweeps/{name}/trials/{trial}/logs/{worker}", dependencies=[Depends(expensive)])
def log(
    service: Serving, principal: Reader, name: Name, trial: TrialId, worker: Worker, position: Position = 0
) -> LogPart:
    """Part of a worker's log from a position on."""
    record = service.records.sweep(principal, name)
    return TrialLogs(record, export.choose(record, trial)).read(worker, position)
