"""Results of sweeps: config, best trial, registered models, comparisons and reports."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import FileResponse, PlainTextResponse

from sweeps.config.sweep_name import SweepName
from sweeps.errors import UnknownName
from sweeps.plan.export import choose
from sweeps.report.report_folder import existing_report
from sweeps.service.api.depends import Name, Reads, Runs, Trial
from sweeps.service.api.response_documents import Body, Document
from sweeps.service.auth.auth import expensive
from sweeps.service.queue.job_requests import Alias, ModelName, TrialId
from sweeps.tracking.record import SweepRecord

SANDBOX = {"Content-Security-Policy": "sandbox allow-scripts; frame-ancestors 'self'"}
"""Headers of a report that give it a separate origin, so that its scripts cannot act for the user."""

router = APIRouter(tags=["results"])

FileName = Annotated[
    str,
    Query(description="File name, for the command in its comment.", pattern=r"^[^\x00-\x1f]+$", max_length=1000),
]
Compared = Annotated[list[SweepName], Query(description="Names of the sweeps.", min_length=2, max_length=20)]


class RegisterBody(Body):
    """Body of ``best --register``."""

    model: ModelName
    """Name of the model in MLflow's registry."""
    trial: TrialId | None = None
    """Number of the trial; default: the best."""
    alias: Alias | None = "champion"
    """Alias of the new version; null for none."""
    merged: bool = False
    """Whether to merge LoRA adapters into their base model."""


class Registered(Document):
    """A registered model version."""

    name: str
    """Name of the model."""
    version: str
    """Number of the version."""
    alias: str | None
    """Alias of the version."""
    uri: str
    """Address for MLflow: models:/NAME/VERSION."""


class Best(Document):
    """The best trial, or the Pareto front; null while no trial has a value."""

    best: dict[str, Any] | list[dict[str, Any]] | None
    """The best trial, or a list of trials."""


class Report(Document):
    """Paths of a report, relative to the API's address."""

    page: str
    """Path of the page."""
    archive: str
    """Path of the ZIP archive."""


@router.get("/sweeps/{name}/best")
def best(operations: Reads, name: Name) -> Best:
    """The best trial of a sweep."""
    return Best(best=operations.record(name).as_json()["best"])


@router.get("/sweeps/{name}/best.yaml", response_class=PlainTextResponse)
def export(
    operations: Reads,
    name: Name,
    trial: Trial = None,
    file: FileName = "best.yaml",
) -> PlainTextResponse:
    """The best trial, or another one, as a config for ``run conf=FILE``."""
    record = operations.record(name)
    return PlainTextResponse(operations.exported(record, choose(record, trial), Path(file)))


@router.get("/sweeps/{name}/config", response_class=PlainTextResponse)
def config(operations: Reads, name: Name) -> PlainTextResponse:
    """The sweep's config, as YAML; empty if it is not recorded."""
    return PlainTextResponse(operations.config_text(operations.record(name)) or "")


@router.post("/sweeps/{name}/register", dependencies=[Depends(expensive)])
def register(operations: Runs, name: Name, body: RegisterBody) -> Registered:
    """Register a trial's checkpoint as a model version in MLflow."""
    return Registered.model_validate(operations.register(name, **body.model_dump()).as_json())


@router.get("/compare", dependencies=[Depends(expensive)])
def compare(operations: Reads, sweep: Compared) -> dict[str, Any]:
    """Sweeps of the same metric side by side: the document of ``compare --json``."""
    return operations.compare(sweep).as_json()


@router.post("/sweeps/{name}/report", dependencies=[Depends(expensive)])
def make(operations: Runs, name: Name) -> Report:
    """Make a sweep's report, even while the sweep runs."""
    operations.make_report(name)
    return Report(page=f"sweeps/{name}/report", archive=f"sweeps/{name}/report.zip")


@router.get("/sweeps/{name}/report", response_class=FileResponse)
def report(operations: Reads, name: Name) -> FileResponse:
    """The page of a sweep's report, if it exists."""
    page = _page(operations.record(name))
    return FileResponse(page, media_type="text/html", headers=SANDBOX)


@router.get("/sweeps/{name}/report.zip", responses={200: {"content": {"application/zip": {}}}}, response_class=Response)
def archive(operations: Reads, name: Name) -> Response:
    """The report's page and its figures as a ZIP archive."""
    page = _page(operations.record(name))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as files:
        for path in sorted(page.parent.iterdir()):
            if path.is_file() and not path.is_symlink():
                files.write(path, path.name)
    return Response(packed.getvalue(), media_type="application/zip")


def _page(record: SweepRecord) -> Path:
    """Return the path of a report's page, or raise ``UnknownName`` if the report has not been made."""
    page = existing_report(record)
    if page is None:
        raise UnknownName(f"{record.sweep} has no report yet; `python -m sweeps report {record.sweep}` makes it")
    return page
