"""Sweeps: lists, records, trials, their logs, and curves; and running, stopping, resuming, extending and retraining."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import ConfigDict, Field

from sweeps.config.sweep_name import SweepName
from sweeps.operations import serialization
from sweeps.plan.export import choose
from sweeps.service.api.depends import InProject, Limit, Metric, Name, Offset, Reads, Runs, User
from sweeps.service.api.response_documents import (
    Body,
    CurvePoint,
    Curves,
    Document,
    Extended,
    Line,
    Prioritised,
    Queued,
    Sweep,
    Sweeps,
    Trial,
    Trials,
)
from sweeps.service.auth.auth import expensive
from sweeps.service.auth.permissions import visible
from sweeps.service.queue import jobs
from sweeps.service.queue.job_requests import (
    TRIAL,
    Alias,
    ConfName,
    Extend,
    ModelName,
    Reproduce,
    Resume,
    Retrain,
    Run,
)
from sweeps.service.queue.job_requests import TrialId as Id
from sweeps.service.queue.job_requests import Word as Token
from sweeps.service.queue.jobs import JobDocument
from sweeps.service.queue.plans import Planned
from sweeps.texts.uri_passwords import redact_uri
from sweeps.tracking.metric_history import fetch_histories
from sweeps.tracking.record import SweepStatus, TrialState
from sweeps.tracking.trial_logs import LogPart
from sweeps.tracking.values import finite

router = APIRouter(tags=["sweeps"])

Tokens = Annotated[list[Token], Field(max_length=1000)]
"""List of overrides; ``access.max_overrides``, which may allow fewer, is checked later."""
TrialId = Annotated[str, Path(description="Number of a trial.", pattern=TRIAL)]
Settled = Annotated[
    bool, Query(description="Whether a trial that `resume` would continue is `interrupted`, as on a terminal.")
]
Worker = Annotated[int, Path(description="Rank of a worker.", ge=0, lt=1_000_000)]
Position = Annotated[int, Query(description="Start: 0, or `position` of the previous part.", ge=0, lt=2**60)]


class RunBody(Queued):
    """Body of ``run``."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"conf": "digits", "overrides": ["search.num_trials=4"], "priority": 0}]}
    )

    conf: ConfName
    """Name of a config, as in ``conf=NAME``."""
    overrides: Tokens = Field(default_factory=list)
    """Overrides, as on the command line."""
    name: SweepName | None = None
    """Name of the sweep; default: the config's and the time."""


class ExtendBody(Prioritised):
    """Body of ``extend``."""

    changes: Annotated[Tokens, Field(min_length=1)]
    """Changes, as on the command line: ``search.num_trials=40``."""


class StopBody(Body):
    """Body of ``stop``."""

    trial: Id | None = None
    """Trial to stop; default: the whole sweep."""


class RetrainBody(Queued):
    """Body of ``retrain``."""

    trial: Id | None = None
    """Number of the trial; default: the best."""
    overrides: Tokens = Field(default_factory=list)
    """Overrides of the trial's config."""
    name: SweepName | None = None
    """Name of the new sweep; default: derived from the old one."""
    model: ModelName | None = Field(None, serialization_alias="register")
    """Name of the model in MLflow's registry."""
    alias: Alias | None = "champion"
    """Alias of the new version; null for none."""
    merged: bool = False
    """Whether to merge LoRA adapters into their base model."""
    no_register: bool = False
    """Whether to train without registering the model."""


class ReproduceBody(Queued):
    """Body of ``reproduce``."""

    trial: Id | None = None
    """Number of the trial; default: all."""
    name: SweepName | None = None
    """Name of the new sweep; default: derived from the old one."""


class PlanDocument(Document):
    """A plan: document of ``--dry-run --json`` and text of ``--dry-run``."""

    plan: dict[str, Any]
    """The document of ``--dry-run --json``."""
    text: str
    """The text of ``--dry-run``."""

    @classmethod
    def of(cls, planned: Planned) -> PlanDocument:
        """Return the document of a plan."""
        return cls(plan=planned.document, text=planned.text)


@router.get("/sweeps")
def sweeps(
    operations: Reads,
    status: Annotated[SweepStatus | None, Query(description="Only those with this status.")] = None,
    user: User = None,
    project: InProject = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Sweeps:
    """Sweeps that are visible to the user, newest first."""
    snapshot = operations.records.sweeps(operations.principal)
    found = [
        line
        for line in snapshot.content
        if (status is None or line.summary.status == status)
        and (user is None or (line.job is not None and line.job.user == user))
        and (project is None or (line.job is not None and line.job.project == project))
    ]
    page = [Line.of(line) for line in found[offset : offset + limit]]
    return Sweeps(total=len(found), taken=snapshot.taken, trouble=redact_uri(snapshot.trouble), sweeps=page)


@router.post("/sweeps", status_code=202)
def run(operations: Runs, body: RunBody) -> JobDocument:
    """Queue a sweep."""
    return JobDocument.of(operations.run(body.to_request(Run), project=body.project, priority=body.priority))


@router.post("/plans")
def plan(operations: Runs, body: RunBody) -> PlanDocument:
    """Plan a sweep without starting it."""
    return PlanDocument.of(operations.plan(body.to_request(Run)))


@router.get("/sweeps/{name}", response_model_exclude_unset=True)
def sweep(operations: Reads, name: Name) -> Sweep:
    """A sweep with its trials."""
    return Sweep.model_validate(operations.record(name).as_json())


@router.get("/sweeps/{name}/record", response_model=dict[str, Any])
def record(operations: Reads, name: Name) -> Response:
    """Full record of a sweep, for clients with ``--server``; non-finite numbers are strings."""
    return Response(serialization.write_record(operations.record(name)), media_type="application/json")


@router.get("/sweeps/{name}/trials")
def trials(
    operations: Reads,
    name: Name,
    state: Annotated[TrialState | None, Query(description="Only those in this state.")] = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Trials:
    """Trials of a sweep, in order."""
    found = [each for each in operations.record(name).trials if state in (None, each.state)]
    return Trials(total=len(found), trials=[Trial.of(each) for each in found[offset : offset + limit]])


@router.get("/sweeps/{name}/curves")
def curves(
    operations: Reads,
    name: Name,
    metric: Metric = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Curves:
    """Values of a metric that a sweep's trials reported; default: the first objective."""
    found = operations.record(name)
    page = found.trials[offset : offset + limit]
    metric = metric or found.metric
    histories = fetch_histories(found.mlflow.tracking_uri, [each.run_id for each in page], metric)
    curves_by_trial = {
        each.trial: [CurvePoint(step=point.step, value=finite(point.value)) for point in histories.get(each.run_id, [])]
        for each in page
    }
    return Curves(metric=metric, curves=curves_by_trial)


@router.get("/sweeps/{name}/jobs")
def jobs_of(operations: Reads, name: Name) -> list[JobDocument]:
    """Jobs that made or continued a sweep, newest first; the newest that failed before a sweep of this name began, if
    there is none."""
    with operations.service.database.connect() as connection:
        found = jobs.of_current_sweep(connection, name)
        unbegun = [job for job in jobs.of_sweep(connection, name) if visible(operations.principal, job)][:1]
    if found or not unbegun:
        operations.records.check_exists(operations.principal, name)
    return [JobDocument.of(job) for job in found or unbegun]


@router.post("/sweeps/{name}/stop", status_code=202)
def stop(operations: Runs, name: Name, body: StopBody | None = None) -> None:
    """Stop a sweep, or one of its trials, without waiting for the end; trials save their state first."""
    operations.stop(name, None if body is None else body.trial)


@router.post("/sweeps/{name}/resume", status_code=202)
def resume(operations: Runs, name: Name, body: Prioritised | None = None) -> JobDocument:
    """Resume a sweep that was interrupted or stopped."""
    body = body or Prioritised()
    return JobDocument.of(operations.resume(body.to_request(Resume, sweep=name), priority=body.priority))


@router.post("/sweeps/{name}/extend", status_code=202)
def extend(operations: Runs, name: Name, body: ExtendBody) -> Extended:
    """Extend a sweep."""
    done = operations.extend(body.to_request(Extend, sweep=name), priority=body.priority)
    if isinstance(done, str):
        return Extended(answer=done, job=None)
    return Extended(answer=None, job=JobDocument.of(done))


@router.post("/sweeps/{name}/retrain", status_code=202)
def retrain(operations: Runs, name: Name, body: RetrainBody) -> JobDocument:
    """Train one trial of a sweep with its full budget, and register it."""
    request = body.to_request(Retrain, sweep=name)
    return JobDocument.of(operations.retrain(request, project=body.project, priority=body.priority))


@router.post("/sweeps/{name}/retraining")
def plan_retraining(operations: Runs, name: Name, body: RetrainBody) -> PlanDocument:
    """Plan a retraining without starting it."""
    return PlanDocument.of(operations.plan_retraining(body.to_request(Retrain, sweep=name)))


@router.post("/sweeps/{name}/reproduce", status_code=202)
def reproduce(operations: Runs, name: Name, body: ReproduceBody) -> JobDocument:
    """Run a sweep, or one of its trials, again."""
    request = body.to_request(Reproduce, sweep=name)
    return JobDocument.of(operations.reproduce(request, project=body.project, priority=body.priority))


@router.post("/sweeps/{name}/reproduction")
def plan_reproduction(operations: Runs, name: Name, body: ReproduceBody) -> PlanDocument:
    """Plan a reproduction without starting it, with the differences between now and the recorded run."""
    return PlanDocument.of(operations.plan_reproduction(body.to_request(Reproduce, sweep=name)))


class LogWorkers(Document):
    """Workers that have a log."""

    workers: list[int]
    """Ranks of the workers."""


@router.get("/sweeps/{name}/trials/{trial}")
def show(operations: Reads, name: Name, trial: TrialId, *, settled: Settled = False) -> dict[str, Any]:
    """A trial with the end of its logs: the document of ``show --trial --json``."""
    return operations.trial(name, trial, settled=settled)


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
