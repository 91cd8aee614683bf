"""Sweeps: the list, one of them, its trials and curves; and starting, stopping and going on with them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from sweeps.redact import redact_uri
from sweeps.service.api import serialization
from sweeps.service.api.depends import Limit, Name, Offset, Serving, Word
from sweeps.service.api.documents import (
    Curves,
    Extended,
    JobDocument,
    Line,
    Point,
    Priority,
    Project,
    Sweep,
    Sweeps,
    Trial,
    Trials,
)
from sweeps.service.auth.auth import Reader, Runner
from sweeps.service.queue import jobs
from sweeps.service.queue.requests import Alias, ConfName, Extend, ModelName, Reproduce, Resume, Retrain, Run, SweepName
from sweeps.service.queue.requests import TrialId as Id
from sweeps.service.queue.requests import Word as Token
from sweeps.tracking.metric_history import fetch_histories
from sweeps.tracking.values import finite

router = APIRouter(tags=["sweeps"])

Tokens = Annotated[list[Token], Field(max_length=1000)]
"""``access.max_overrides`` allows fewer, in its own words."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    priority: Priority = 0
    """The higher starts first."""


class RunBody(_Body):
    """What ``run`` takes."""

    conf: ConfName
    overrides: Tokens = Field(default_factory=list)
    name: SweepName | None = None
    project: Project | None = None

    def asked(self) -> Run:
        """The request."""
        return Run(conf=self.conf, overrides=self.overrides, name=self.name)


class ExtendBody(_Body):
    """What ``extend`` takes."""

    changes: Annotated[Tokens, Field(min_length=1)]


class StopBody(BaseModel):
    """What ``stop`` takes."""

    model_config = ConfigDict(extra="forbid")

    trial: Id | None = None
    """Default: the whole sweep."""


class RetrainBody(_Body):
    """What ``retrain`` takes."""

    trial: Id | None = None
    overrides: Tokens = Field(default_factory=list)
    name: SweepName | None = None
    model: ModelName | None = None
    """Name in MLflow's registry."""
    alias: Alias = "champion"
    merged: bool = False
    no_register: bool = False
    project: Project | None = None

    def asked(self, sweep: str) -> Retrain:
        """The request."""
        values = self.model_dump(exclude={"priority", "project", "model"})
        return Retrain.model_validate({**values, "sweep": sweep, "register": self.model})


class ReproduceBody(_Body):
    """What ``reproduce`` takes."""

    trial: Id | None = None
    name: SweepName | None = None
    project: Project | None = None

    def asked(self, sweep: str) -> Reproduce:
        """The request."""
        return Reproduce(sweep=sweep, trial=self.trial, name=self.name)


class PlanDocument(BaseModel):
    """What would be done: the document of ``--dry-run --json``, and what ``--dry-run`` prints."""

    plan: dict[str, Any]
    text: str


@router.get("/sweeps")
def sweeps(
    service: Serving,
    principal: Reader,
    status: Annotated[str | None, Query(max_length=20)] = None,
    user: Word | None = None,
    project: Word | None = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Sweeps:
    """The sweeps that there are for the principal, the newest first."""
    seen = service.records.sweeps(principal)
    found = [
        line
        for line in seen.content
        if (status is None or line.summary.status == status)
        and (user is None or (line.job is not None and line.job.user == user))
        and (project is None or (line.job is not None and line.job.project == project))
    ]
    page = [Line.of(line) for line in found[offset : offset + limit]]
    return Sweeps(total=len(found), taken=seen.taken, trouble=redact_uri(seen.trouble), sweeps=page)


@router.post("/sweeps", status_code=202)
def run(service: Serving, principal: Runner, body: RunBody) -> JobDocument:
    """Run a sweep, when its turn comes."""
    return JobDocument.of(service.commands.run(principal, body.asked(), project=body.project, priority=body.priority))


@router.post("/plans")
def plan(service: Serving, principal: Runner, body: RunBody) -> PlanDocument:
    """What running a sweep would do; starts nothing."""
    found = service.commands.plan(principal, body.asked())
    return PlanDocument(plan=found.document, text=found.text)


@router.get("/sweeps/{name}")
def sweep(service: Serving, principal: Reader, name: Name) -> Sweep:
    """A sweep with its trials."""
    return Sweep.model_validate(service.records.sweep(principal, name).as_json())


@router.get("/sweeps/{name}/record", response_model=dict[str, Any])
def record(service: Serving, principal: Reader, name: Name) -> Response:
    """All that is recorded of a sweep, as ``--server`` reads it; numbers that are not finite are texts."""
    return Response(serialization.write_record(service.records.sweep(principal, name)), media_type="application/json")


@router.get("/sweeps/{name}/trials")
def trials(
    service: Serving,
    principal: Reader,
    name: Name,
    state: Annotated[str | None, Query(max_length=20)] = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Trials:
    """A sweep's trials, in their order."""
    found = [each for each in service.records.sweep(principal, name).trials if state in (None, each.state)]
    return Trials(total=len(found), trials=[Trial.of(each) for each in found[offset : offset + limit]])


@router.get("/sweeps/{name}/curves")
def curves(
    service: Serving, principal: Reader, name: Name, metric: Word | None = None, limit: Limit = 100, offset: Offset = 0
) -> Curves:
    """What a sweep's trials reported of a metric; default: of its first objective."""
    found = service.records.sweep(principal, name)
    page = found.trials[offset : offset + limit]
    metric = metric or found.metric
    histories = fetch_histories(found.mlflow.tracking_uri, [each.run_id for each in page], metric)
    drawn = {
        each.trial: [Point(step=point.step, value=finite(point.value)) for point in histories.get(each.run_id, [])]
        for each in page
    }
    return Curves(metric=metric, curves=drawn)


@router.get("/sweeps/{name}/jobs")
def jobs_of(service: Serving, principal: Reader, name: Name) -> list[JobDocument]:
    """The jobs that made a sweep or went on with it, the newest first."""
    service.records.check_exists(principal, name)
    with service.database.connect() as connection:
        return [JobDocument.of(job) for job in jobs.of_current_sweep(connection, name)]


@router.post("/sweeps/{name}/stop", status_code=202)
def stop(service: Serving, principal: Runner, name: Name, body: StopBody | None = None) -> None:
    """End a sweep, or one of its trials; they save their state first, and are not waited for."""
    service.commands.stop(principal, name, None if body is None else body.trial)


@router.post("/sweeps/{name}/resume", status_code=202)
def resume(service: Serving, principal: Runner, name: Name, body: _Body | None = None) -> JobDocument:
    """Go on with a sweep that was interrupted or stopped."""
    return JobDocument.of(service.commands.resume(principal, Resume(sweep=name), priority=body.priority if body else 0))


@router.post("/sweeps/{name}/extend", status_code=202)
def extend(service: Serving, principal: Runner, name: Name, body: ExtendBody) -> Extended:
    """Let a sweep go further."""
    done = service.commands.extend(principal, Extend(sweep=name, changes=body.changes), priority=body.priority)
    if isinstance(done, str):
        return Extended(answer=done, job=None)
    return Extended(answer=None, job=JobDocument.of(done))


@router.post("/sweeps/{name}/retrain", status_code=202)
def retrain(service: Serving, principal: Runner, name: Name, body: RetrainBody) -> JobDocument:
    """Train one trial of a sweep with its full budget, and register it."""
    job = service.commands.retrain(principal, body.asked(name), project=body.project, priority=body.priority)
    return JobDocument.of(job)


@router.post("/sweeps/{name}/retraining")
def plan_retraining(service: Serving, principal: Runner, name: Name, body: RetrainBody) -> PlanDocument:
    """What retraining would do; starts nothing."""
    found = service.commands.plan_retraining(principal, body.asked(name))
    return PlanDocument(plan=found.document, text=found.text)


@router.post("/sweeps/{name}/reproduce", status_code=202)
def reproduce(service: Serving, principal: Runner, name: Name, body: ReproduceBody) -> JobDocument:
    """Run a sweep, or one of its trials, once more."""
    job = service.commands.reproduce(principal, body.asked(name), project=body.project, priority=body.priority)
    return JobDocument.of(job)


@router.post("/sweeps/{name}/reproduction")
def plan_reproduction(service: Serving, principal: Runner, name: Name, body: ReproduceBody) -> PlanDocument:
    """What reproducing would do, and what is another now than it was then; starts nothing."""
    found = service.commands.plan_reproduction(principal, body.asked(name))
    return PlanDocument(plan=found.document, text=found.text)
