"""The schema of where a sweep runs, and where it is recorded."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PlainSerializer
from pydantic.dataclasses import dataclass

from sweeps.credentials import shown
from sweeps_train.config import STRICT, NonNegativeFloat, PositiveFloat, PositiveInt

NonEmpty = Annotated[str, Field(min_length=1)]


@dataclass(config=STRICT, kw_only=True)
class Scaling:
    """The workers of one trial."""

    num_workers: PositiveInt = 2
    """Processes that train one trial together."""
    use_gpu: bool | Literal["auto"] = "auto"
    """One GPU for each worker; auto: if the cluster has any."""
    resources_per_worker: dict[str, NonNegativeFloat] = Field(default_factory=dict)
    """What Ray reserves for a worker besides its GPU; default: one CPU."""
    isolation: Literal["auto", "warm", "process"] = "auto"
    """``warm``: worker processes outlive a trial, and the next one starts in them within milliseconds;
    ``process``: every trial has fresh ones; auto: warm for our own tasks, process for a user's function."""
    hang_timeout_s: PositiveFloat = 1800.0
    """Seconds without a word from a trial's workers, once they train, after which they are taken to hang: the trial
    fails, and is retried in new ones."""


@dataclass(config=STRICT, kw_only=True)
class Tracking:
    """MLflow."""

    uri: Annotated[NonEmpty, PlainSerializer(shown, when_used="json")] = "sqlite:///mlflow.db"
    """Tracking server or store. A password in it is written nowhere."""
    experiment: NonEmpty | None = None
    """MLflow experiment; default: the name of the conf."""
    checkpoints: Literal["copy", "reference", "none"] = "copy"
    """``copy`` a trial's kept checkpoints into its run's artifacts; ``reference``: its run's tags say where they are in
    the sweep's folder, which must then stay; or ``none``."""
    patience_s: PositiveFloat = 60.0
    """Seconds that the end of a sweep waits for a tracking server that takes nothing. What it has not taken by then
    stays in the sweep's folder, from where ``resume`` delivers it."""
    report: bool = True
    """When the sweep has ended, make the page that ``python -m sweeps report`` makes, and attach it to its run."""


@dataclass(config=STRICT, kw_only=True)
class Cluster:
    """The Ray cluster that trials run on."""

    address: NonEmpty = "local"
    """``local`` starts Ray here, for this sweep alone; ``auto`` or an address joins a running cluster."""
    num_cpus: PositiveInt | None = None
    """Logical CPUs of a local cluster; default: the machine's."""
    num_gpus: Annotated[int, Field(ge=0)] | None = None
    """GPUs of a local cluster; default: the machine's."""
