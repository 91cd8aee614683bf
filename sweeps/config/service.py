"""The schema of the service: ``conf/service/``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps.config.access import Access
from sweeps.config.execution import NonEmpty
from sweeps.config.notifications import Channel
from sweeps_train.config import STRICT, PositiveFloat, PositiveInt

NonNegativeInt = Annotated[int, Field(ge=0)]


@dataclass(config=STRICT, kw_only=True)
class Queue:
    """How many submitted sweeps run, and how many wait."""

    running: PositiveInt = 1
    """Sweeps at once on one machine, of all the services on it together."""
    per_user: PositiveInt | None = None
    """Of one user at once, on all machines together; default: as many as run."""
    per_project: PositiveInt | None = None
    """Of one project."""
    waiting_per_user: PositiveInt = 100
    """Sweeps of one user that may wait."""
    restarts: NonNegativeInt = 3
    """How often a sweep whose process has died, or whose machine was started anew, is resumed by itself."""
    keep_jobs_days: PositiveInt = 400
    """Days for which a job that has ended is remembered; longer, as long as the sweep that it made is in the store."""
    keep_logs_days: PositiveInt = 90
    """Days for which the log of a job's process is kept outside of its sweep's folder."""
    dead_after_s: PositiveFloat = 30.0
    """Seconds without a sign of life after which a service is taken for dead, and another one on its machine takes over
    its sweeps. They run on meanwhile."""
    lost_after_s: Annotated[float, Field(ge=60)] = 600.0
    """Seconds without a sign of life, neither of a machine's services nor of a sweep's own process there, after which
    that machine is taken for lost, and a service on another one goes on with the sweep or ends it."""


@dataclass(config=STRICT, kw_only=True)
class Log:
    """Where the service writes its own log, besides standard error."""

    file: NonEmpty | None = None
    """Default: ``service.log`` in ``output_dir``."""
    max_mib: PositiveInt = 10
    """Size at which the file is put aside, and a new one begun."""
    files: Annotated[int, Field(ge=2)] = 5
    """How many there are at most, the one in use among them."""


@dataclass(config=STRICT, kw_only=True)
class Service:
    """One process that runs schedules, the queue, the REST API and the pages. Several may share a database."""

    host: NonEmpty = "127.0.0.1"
    """Address to listen on. Beyond this machine it takes tokens: ``python -m sweeps token create``."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8642
    """0: any that is free."""
    database: NonEmpty = "sqlite:///outputs/service.db"
    """Queue, firings, tokens: SQLite on one machine, ``postgresql+psycopg://...`` where services share it."""
    output_dir: NonEmpty = "outputs"
    """Folder of the sweeps that it runs, and of their logs."""
    tracking_uri: NonEmpty = "sqlite:///mlflow.db"
    """MLflow store or server in which its sweeps are recorded."""
    config_dirs: list[NonEmpty] = Field(default_factory=list)
    """Folders of configs before ours, for the sweeps that it runs; those of ``--config-dir`` come before them."""
    public_url: NonEmpty | None = None
    """Where people reach it, for links in notifications; default: ``http://HOST:PORT``."""
    mlflow_url: NonEmpty | None = None
    """Where people reach MLflow's pages; default: the tracking server, if it is one."""
    ray_dashboard_url: NonEmpty | None = None
    """Where people reach the dashboard of the Ray cluster."""
    schedules: list[NonEmpty] | None = None
    """Names of the schedules that it fires; default: all in ``conf/schedule/`` and in the folders of configs."""
    enable: list[NonEmpty] = Field(default_factory=list)
    """Names of schedules that it fires although their files say ``enabled: false``, as that of ours does."""
    keep_firings_days: PositiveInt = 400
    """Days for which it remembers what became of a schedule's firings; sweeps are kept all the same."""
    queue: Queue = Field(default_factory=Queue)
    log: Log = Field(default_factory=Log)
    access: Access = Field(default_factory=Access)
    notifications: list[Channel] = Field(default_factory=list)
    """Whom it tells of what."""
