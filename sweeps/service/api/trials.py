"""Single trials: document and worker logs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query

from sweeps.plan.export import choose
from sweeps.service.api.depends import Name, Reads
from sweeps.service.api.schema import Document
from sweeps.service.auth.auth import expensive
from sweeps.tracking.trial_logs import LogPart

router = APIRouter(tags=["sweeps"])

TrialId = Annotated[str, Path(description="Number of a trial.", pattern=r"^[0-9]{1,9}(r[0-9]{1,2})?$")]
Worker = Annotated[int, Path(description="Rank of a worker.", ge=0, lt=1_000_000)]
Position = Annotated[int, Query(description="Start: 0, or `position` of the previous part.", ge=0, lt=2**60)]


class LogWorkers(Document):
    """Workers that have a log."""

    workers: list[int]
    """Ranks of the workers."""


@router.get("/sweeps/{name}/trials/{trial}")
def show(operations: Reads, name: Name, trial: TrialId) -> dict[str, Any]:
    """A trial with the end of its logs: the document of ``show --trial --json``."""
    return operations.trial(name, trial)


@router.get("/sweeps/{name}/trials/{trial}/logs")
def logs(operations: Reads, name: Name, trial: TrialId) -> LogWorkers:
    """Workers of a trial that have a log."""
    record = operations.record(name)
    return LogWorkers(workers=operations.log_workers(record, choose(record, trial)))


@router.get("/sweeps/{name}/trials/{trial}/logs/{worker}", dependencies=[Depends(expensive)])
def log(operations: Reads, name: Name, trial: TrialId, worker: Worker, position: Position = 0) -> LogPart:
    """Part of a worker's log from a position on."""
    record = operations.record(name)
    return operations.log_part(record, choose(record, trial), worker, position)
