"""Schema of the service: ``conf/service/``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps.config.access import Access
from sweeps.config.notifications import Channel
from sweeps.storage.location import is_remote
from sweeps.texts.uri_passwords import redact_uri
from sweeps_train.config import STRICT, PositiveFloat, PositiveInt
from sweeps_train.config.fields import NonEmpty

NonNegativeInt = Annotated[int, Field(ge=0)]


@dataclass(config=STRICT, kw_only=True)
class Queue:
    """Limits of running and queued sweeps, and how long records of them are kept."""

    running: PositiveInt = 1
    """Maximum number of running sweeps on one machine, for all services on it together."""
    per_user: PositiveInt | None = None
    """Maximum number of running sweeps of one user, on all machines together; default: no separate limit."""
    per_project: PositiveInt | None = None
    """Maximum number of running sweeps of one project; default: no separate limit."""
    waiting_per_user: PositiveInt = 100
    """Maximum number of queued sweeps of one user."""
    restarts: NonNegativeInt = 3
    """Maximum number of automatic restarts of a sweep whose process has died, for which Ray did not start, or whose
    machine was restarted."""
    max_hours: PositiveFloat | None = None
    """Maximum hours from the start of a job until the service ends it, even if it hangs; default: no limit. A submitter
    may set a lower one (``max_hours``); set ``search.stop.wall_hours`` to end the search properly before that."""
    keep_jobs_days: PositiveInt = 400
    """Days for which an ended job is kept; longer if its sweep is still in the tracking store."""
    keep_logs_days: PositiveInt = 90
    """Days for which the log of a job's process is kept outside of its sweep's folder."""
    dead_after_s: PositiveFloat = 30.0
    """Seconds without a heartbeat after which a service counts as dead, and another service on its machine takes over
    its sweeps, which continue running."""
    lost_after_s: Annotated[float, Field(ge=60)] = 600.0
    """Seconds without a heartbeat from both a machine's services and a sweep's own process there, after which the
    machine counts as failed, and a service on another machine continues or ends the sweep."""


@dataclass(config=STRICT, kw_only=True)
class Log:
    """Log file of the service, in addition to standard error."""

    file: NonEmpty | None = None
    """Path of the log file; default: ``service.log`` in ``output_dir``."""
    max_mib: PositiveInt = 10
    """Size in MiB at which the log file is rotated."""
    files: Annotated[int, Field(ge=2)] = 5
    """Maximum number of log files, including the current one."""
    format: Literal["text", "json"] = "text"
    """``json``: each message is a line of JSON, on standard error as well, with the ids of the job, sweep and schedule
    that it concerns."""


@dataclass(config=STRICT, kw_only=True)
class Service:
    """Config of a service process, which runs schedules, the queue, the REST API and the pages. Several processes may
    share a database."""

    host: NonEmpty = "127.0.0.1"
    """Address to listen on. If other machines can reach it, tokens are required: ``python -m sweeps token create``."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8642
    """Port to listen on; 0: any free port."""
    database: NonEmpty = "sqlite:///outputs/service.db"
    """Database of queue, firings and tokens: SQLite on one machine, ``postgresql+psycopg://...`` for several
    services."""
    output_dir: NonEmpty = "outputs"
    """Folder of the sweeps and their logs, on a disk of this machine or a mounted one. Not an object store: schedules,
    logs and locks are files in it, and the service reads those that drivers of sweeps write."""
    tracking_uri: NonEmpty = "sqlite:///mlflow.db"
    """MLflow store or server of the sweeps."""
    config_dirs: list[NonEmpty] = Field(default_factory=list)
    """Folders of configs, which take precedence over the built-in ones; folders of ``--config-dir`` take precedence
    over both."""
    public_url: NonEmpty | None = None
    """Address of the service for people, used in notifications; default: ``http://HOST:PORT``."""
    mlflow_url: NonEmpty | None = None
    """Address of MLflow's pages for people; default: the tracking server, if there is one."""
    docs_dir: NonEmpty | None = None
    """Folder of the documentation as ``make docs`` builds it, served under ``/docs``; default: the one inside the
    package, if it was built."""
    ray_dashboard_url: NonEmpty | None = None
    """Address of the Ray cluster's dashboard for people."""
    schedules: list[NonEmpty] | None = None
    """Names of the schedules that this service fires; default: all in ``conf/schedule/`` and in the folders of
    configs."""
    enable: list[NonEmpty] = Field(default_factory=list)
    """Names of schedules to fire although their files say ``enabled: false``, such as the built-in one."""
    keep_firings_days: PositiveInt = 400
    """Days for which outcomes of firings are kept; sweeps are not affected."""
    queue: Queue = Field(default_factory=Queue)
    """Limits of running and queued sweeps."""
    log: Log = Field(default_factory=Log)
    """Log file."""
    access: Access = Field(default_factory=Access)
    """Limits of requests, and what submitted configs may reach."""
    notifications: list[Channel] = Field(default_factory=list)
    """Channels for notifications."""

    @property
    def folder(self) -> Path:
        """Absolute path of ``output_dir``."""
        return Path(self.output_dir).expanduser().absolute()

    def __post_init__(self) -> None:
        if is_remote(self.output_dir):
            raise ValueError(
                f"output_dir={self.output_dir}: a service needs a folder on its own machine: it keeps schedules, logs "
                "and locks there and reads the files of its sweeps' drivers; give a path"
            )
        from sqlalchemy import make_url  # late, since the schema is also read where no service runs
        from sqlalchemy.exc import ArgumentError

        try:
            make_url(self.database)
        except (ArgumentError, ValueError):
            raise ValueError(
                f"database={redact_uri(self.database)}: must be a URL, as in sqlite:///outputs/service.db"
            ) from None
