"""Response documents of the API. Non-finite numbers are null, as in ``--json``."""

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
    """Project and priority of a new job."""

    model_config = ConfigDict(extra="forbid")

    project: Project | None = None
    """Project; default: the first of the token, else the user's name."""
    priority: Priority = 0
    """Higher starts first."""


class JobDocument(BaseModel):
    """A job. Times are seconds since 1970 (UTC)."""

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
        """Return the document of a job, with secrets in overrides and error messages redacted."""
        return cls.model_validate(_redact(job.as_json()))


class Jobs(BaseModel):
    """A page of jobs."""

    jobs: list[JobDocument]
    next: int | None = None
    """Value of ``before`` for the next page; null on the last page, and for the queue."""


class Extended(BaseModel):
    """Result of extending a sweep."""

    answer: str | None
    """Answer of the driver, if the sweep runs and was extended at once."""
    job: JobDocument | None
    """Job that continues the sweep, if it had ended."""


class Line(BaseModel):
    """A sweep in a list."""

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
    """Owner; null if the sweep was not made through the service."""
    project: str | None

    @classmethod
    def of(cls, line: SweepLine) -> Line:
        """Return the document of a sweep in the list."""
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
    """A page of sweeps, newest first."""

    total: int
    """Number of all sweeps that match."""
    taken: float
    """Time at which this was read from MLflow."""
    trouble: str
    """Reason why it is not newer, if MLflow does not answer; otherwise empty."""
    sweeps: list[Line]


class Sweep(BaseModel):
    """A sweep with its trials: the document of ``show --json``."""

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
    """A trial."""

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
        """Return the document of a trial."""
        more = {name: getattr(trial, name) for name in ("started", "ended", "checkpoint", "error")}
        return cls.model_validate({**trial.as_json(), **more})


class Trials(BaseModel):
    """A page of trials."""

    total: int
    trials: list[Trial]


class CurvePoint(BaseModel):
    """A value that a trial reported."""

    step: int
    value: float | None


class Curves(BaseModel):
    """Reported values of a metric, by trial."""

    metric: str
    curves: dict[str, list[CurvePoint]]


def _redact(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _redact(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_redact(each) for each in value]
    return redacted(value) if isinstance(value, str) else value
