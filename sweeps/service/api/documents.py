"""What the API answers. Numbers that are not finite are null, as in ``--json``."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from sweeps.provenance.secrets import redacted
from sweeps.service.queue.jobs import Job
from sweeps.service.queue.requests import SweepName
from sweeps.service.record_cache import SweepLine
from sweeps.tracking.record import TrialRecord

Priority = Annotated[int, Field(ge=-1000, le=1000)]
Project = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9@._+-]{0,99}$")]


class Queued(BaseModel):
    """Where in the queue a job is to be, beside what is asked."""

    model_config = ConfigDict(extra="forbid")

    project: Project | None = None
    """Default: the principal's first, else their own name."""
    priority: Priority = 0
    """The higher starts first."""


class JobDocument(BaseModel):
    """A submitted sweep. Times are seconds since 1970 (UTC)."""

    id: int
    verb: str
    sweep: str
    request: dict[str, Any]
    user: str
    project: str
    priority: int
    state: str
    submitted: float
    started: float | None
    ended: float | None
    end_by: float | None
    schedule: str | None
    due: float | None
    attempts: int
    stop_asked: float | None
    error: str | None

    @classmethod
    def of(cls, job: Job) -> JobDocument:
        """The document of a job, without secrets that somebody wrote into an override, or a library into an error."""
        return cls.model_validate(_shown(job.as_json()))


class Jobs(BaseModel):
    """A page of jobs."""

    jobs: list[JobDocument]
    next: int | None = None
    """Value of ``before`` for the next page; null on the last one, and in the queue."""


class Extended(BaseModel):
    """What became of a wish to go further."""

    answer: str | None
    """What the sweep's driver said: it runs, and goes further."""
    job: JobDocument | None
    """Which goes on with it: it had ended."""


class Line(BaseModel):
    """A sweep in the list."""

    sweep: str
    conf: str
    experiment: str
    experiment_id: str
    status: str
    metric: str | list[str]
    mode: str | list[str]
    best: float | None
    counts: dict[str, int]
    started: float
    wall_s: float
    run_id: str
    planned: int | None
    user: str | None
    """Whose it is; nobody's, if it was not made through the service."""
    project: str | None

    @classmethod
    def of(cls, line: SweepLine) -> Line:
        """The document of a line."""
        summary, job = line.summary, line.job
        return cls.model_validate(
            {
                **summary.as_json(),
                "experiment_id": summary.experiment_id,
                "planned": summary.planned,
                "user": None if job is None else job.user,
                "project": None if job is None else job.project,
            }
        )


class Sweeps(BaseModel):
    """A page of sweeps, the newest first."""

    total: int
    """Of all that match."""
    taken: float
    """When this was read from MLflow."""
    trouble: str
    """Why it is not newer; empty if all is well."""
    sweeps: list[Line]


class Sweep(BaseModel):
    """A sweep with its trials: the document that ``show --json`` prints."""

    sweep: SweepName
    status: str
    metric: str | list[str]
    mode: str | list[str]
    counts: dict[str, int]
    best: dict[str, Any] | list[dict[str, Any]] | None
    mlflow: dict[str, str]
    trials: list[dict[str, Any]]
    time: dict[str, float]


class Trial(BaseModel):
    """One trial."""

    trial: str
    state: str
    value: float | list[float | None] | None
    params: dict[str, Any]
    run_id: str
    steps: int
    attempts: int
    started: float | None
    ended: float | None
    checkpoint: str | None
    error: str | None

    @classmethod
    def of(cls, trial: TrialRecord) -> Trial:
        """The document of a trial."""
        more = {name: getattr(trial, name) for name in ("started", "ended", "checkpoint", "error")}
        return cls.model_validate({**trial.as_json(), **more})


class Trials(BaseModel):
    """A page of trials."""

    total: int
    trials: list[Trial]


class Point(BaseModel):
    """A value that a trial reported."""

    step: int
    value: float | None


class Curves(BaseModel):
    """What trials reported of a metric, by trial."""

    metric: str
    curves: dict[str, list[Point]]


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shown(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shown(each) for each in value]
    return redacted(value) if isinstance(value, str) else value
