"""The schema of where a sweep runs, and where it is recorded."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PlainSerializer
from pydantic.dataclasses import dataclass

from sweeps.redact import redact_uri
from sweeps_train.config import STRICT, NonNegativeFloat, PositiveFloat, PositiveInt
from sweeps_train.config.reach import Flag, Reach

NonEmpty = Annotated[str, Field(min_length=1)]


@dataclass(config=STRICT, kw_only=True)
class Scaling:
    """The workers of one trial."""

    num_workers: PositiveInt = 2
    """Processes that train one trial together."""
    use_gpu: Flag | Literal["auto"] = "auto"
    """One GPU for each worker; auto: if the cluster has any."""
    resources_per_worker: Annotated[dict[str, NonNegativeFloat], Reach.NOTHING] = Field(default_factory=dict)
    """What Ray reserves for a worker besides its GPU; default: one CPU."""
    placement: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK"
    """How a trial's workers lie on the nodes: ``PACK`` on as few as possible, ``SPREAD`` on as many; ``STRICT_PACK``
    all on one, ``STRICT_SPREAD`` each on another one, or the trial does not start."""
    accelerator_type: Annotated[NonEmpty | None, Reach.NOTHING] = None
    """Only GPUs of this kind, as Ray names them: ``A100``, ``H100``, ``L4``."""
    labels: Annotated[dict[str, str], Reach.NOTHING] = Field(default_factory=dict)
    """Only nodes with these labels, which ``ray start --labels`` gives them: ``{market-type: spot}``."""
    isolation: Literal["auto", "warm", "process"] = "auto"
    """``warm``: worker processes outlive a trial, and the next one starts in them within milliseconds;
    ``process``: every trial has fresh ones; auto: warm for our own tasks, process for a user's function."""
    hang_timeout_s: PositiveFloat = 1800.0
    """Seconds without a word from a trial's workers, once they train, after which they are taken to hang: the trial
    fails, and is retried in new ones."""

    def __post_init__(self) -> None:
        if self.accelerator_type is not None and self.use_gpu is False:
            raise ValueError(
                f"accelerator_type={self.accelerator_type} goes with use_gpu=true; set it, or drop the type"
            )
        gpus = self.resources_per_worker.get("GPU", 1.0)
        if 0 < gpus < 1 and self.num_workers > 1 and self.placement != "STRICT_SPREAD":
            raise ValueError(
                f"resources_per_worker.GPU={gpus:g} with num_workers={self.num_workers}: workers of one trial would "
                "share a GPU, which NCCL refuses; use num_workers=1 (trials then share GPUs), whole GPUs, or "
                "placement=STRICT_SPREAD"
            )


@dataclass(config=STRICT, kw_only=True)
class Tracking:
    """MLflow."""

    uri: Annotated[NonEmpty, PlainSerializer(redact_uri, when_used="json"), Reach.STORE] = "sqlite:///mlflow.db"
    """Tracking server or store. A password in it is written nowhere."""
    experiment: Annotated[NonEmpty | None, Reach.NOTHING] = None
    """MLflow experiment; default: the name of the conf."""
    checkpoints: Literal["copy", "reference", "none"] = "copy"
    """``copy`` a trial's kept checkpoints into its run's artifacts; ``reference``: its run's tags say where they are in
    the sweep's folder, which must then stay; or ``none``."""
    patience_s: PositiveFloat = 60.0
    """Seconds that the end of a sweep waits for a tracking server that takes nothing. What it has not taken by then
    stays in the sweep's folder, from where ``resume`` delivers it."""
    report: Flag = True
    """When the sweep has ended, make the page that ``python -m sweeps report`` makes, and attach it to its run."""


@dataclass(config=STRICT, kw_only=True)
class Cluster:
    """The Ray cluster that trials run on."""

    address: Annotated[NonEmpty, Reach.CLUSTER] = "local"
    """``local`` starts Ray here, for this sweep alone; ``auto`` or an address joins a running cluster."""
    num_cpus: PositiveInt | None = None
    """Logical CPUs of a local cluster; default: the machine's."""
    num_gpus: Annotated[int, Field(ge=0)] | None = None
    """GPUs of a local cluster; default: the machine's."""
