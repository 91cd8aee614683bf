"""Documents and bodies of the API, whose attribute docstrings become descriptions in its OpenAPI document. Non-finite
numbers are null, as in ``--json``."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from sweeps.config.sweep_name import SweepName
from sweeps.service.queue.job_requests import Hours
from sweeps.service.queue.jobs import JobDocument
from sweeps.service.record_cache import SweepLine
from sweeps.tracking.record import TrialRecord

Priority = Annotated[int, Field(ge=-1000, le=1000)]
Project = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9@._+-]{0,99}$")]


R = TypeVar("R", bound=BaseModel)


class Document(BaseModel):
    """A document of a response."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Body(BaseModel):
    """A body of a request; unknown keys are refused."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")


class Prioritised(Body):
    """Body of a request that makes a job."""

    priority: Priority = 0
    """Priority; higher starts first."""
    max_hours: Hours | None = None
    """Hours from the start until the service ends the job, even if it hangs; the operator may allow fewer."""

    def to_request(self, kind: type[R], **more: str) -> R:
        """Convert the body to a request for the queue."""
        return kind.model_validate({**self.model_dump(by_alias=True, exclude={"priority", "project"}), **more})


class Queued(Prioritised):
    """Body of a request that makes a sweep."""

    project: Project | None = None
    """Project; default: the first project of the token, otherwise the user's name."""


class Jobs(Document):
    """A page of jobs."""

    jobs: list[JobDocument]
    """The jobs."""
    next: int | None = None
    """Value of ``before`` for the next page; null on the last page, and for the queue."""


class Extended(Document):
    """Result of extending a sweep."""

    answer: str | None
    """Answer of the driver, if the sweep is running and was extended immediately."""
    job: JobDocument | None
    """Job that continues the sweep, if the sweep had ended."""


class Line(Document):
    """A sweep in a list."""

    sweep: str
    """Name of the sweep."""
    conf: str
    """Name of the config."""
    experiment: str
    """MLflow experiment."""
    experiment_id: str
    """Id of the experiment in MLflow."""
    status: str
    """running, finished, stopped, failed or interrupted."""
    metric: str | list[str]
    """Metric that is optimised, or a list of several."""
    mode: str | list[str]
    """min or max, or a list."""
    best: float | None
    """Best value so far, of the first metric."""
    counts: dict[str, int]
    """Number of trials by state."""
    started: float
    """Time of the sweep's start."""
    wall_s: float
    """Seconds that the sweep has run."""
    run_id: str
    """MLflow run of the sweep."""
    planned: int | None
    """Number of trials to start."""
    user: str | None
    """Owner; null if the sweep was not made through the service."""
    project: str | None
    """Project; null if the sweep was not made through the service."""

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


class Sweeps(Document):
    """A page of sweeps, newest first."""

    total: int
    """Number of all matching sweeps."""
    taken: float
    """Time at which the list was read from MLflow."""
    trouble: str
    """Error of MLflow, if it does not answer and the list is an older one; otherwise empty."""
    sweeps: list[Line]
    """The sweeps."""


class Sweep(Document):
    """A sweep with its trials: the document of ``show --json``."""

    sweep: SweepName
    """Name of the sweep."""
    status: str
    """running, finished, stopped, failed or interrupted."""
    metric: str | list[str]
    """Metric that is optimised, or a list of several."""
    mode: str | list[str]
    """min or max, or a list."""
    counts: dict[str, int]
    """Number of trials by state."""
    best: dict[str, Any] | list[dict[str, Any]] | None
    """Best trial, or the Pareto front; null while no trial has a value."""
    mlflow: dict[str, str]
    """Address of the store, experiment and run."""
    trials: list[dict[str, Any]]
    """All trials."""
    time: dict[str, float | dict[str, float]]
    """Seconds of the sweep, seconds of training, the fraction of the workers' time in which they computed steps that
    were kept, and the seconds of all workers by activity."""
    confirmation: dict[str, Any] | None = None
    """Winner among the best trials, and the means of these trials with confidence intervals, if search.confirm is
    set."""
    repeats: list[dict[str, Any]] = Field(default_factory=list)
    """Trials that repeat the best ones with other seeds."""
    stages: list[dict[str, Any]] = Field(default_factory=list)
    """Stages of the search with their trials, and the rank agreement of each with the trainings that follow it."""
    forecast: dict[str, Any] | None = None
    """Remaining time and work of a sweep that has not ended."""


class Trial(Document):
    """A trial."""

    trial: str
    """Number of the trial."""
    state: str
    """running, finished, pruned, failed or stopped."""
    value: float | list[float | None] | None
    """Best reported value, or a list with several metrics."""
    params: dict[str, Any]
    """Values by dotted path."""
    run_id: str
    """MLflow run of the trial."""
    steps: int
    """Optimizer steps done."""
    attempts: int
    """Number of times that the trial was started."""
    started: float | None
    """Time of the trial's start."""
    ended: float | None
    """Time of the trial's end."""
    checkpoint: str | None
    """Address of the trial's best checkpoint."""
    error: str | None
    """Last line of the trial's error."""

    @classmethod
    def of(cls, trial: TrialRecord) -> Trial:
        """Return the document of a trial."""
        more = {name: getattr(trial, name) for name in ("started", "ended", "checkpoint", "error")}
        return cls.model_validate({**trial.as_json(), **more})


class Trials(Document):
    """A page of trials."""

    total: int
    """Number of all matching trials."""
    trials: list[Trial]
    """The trials."""


class CurvePoint(Document):
    """A value that a trial reported."""

    step: int
    """Step of the report."""
    value: float | None
    """Reported value; null if it is not finite."""


class Curves(Document):
    """Reported values of a metric, by trial."""

    metric: str
    """Name of the metric."""
    curves: dict[str, list[CurvePoint]]
    """Points by number of the trial."""
