"""Schema of the job that ``submit`` requests from Slurm or KubeRay."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from sweeps_train.config import STRICT, PositiveFloat, PositiveInt
from sweeps_train.config.reach import Flag, Reach

Word = Annotated[str, Field(pattern=r"^[^\s\"'\\$`;|&<>#]+$", max_length=400)]
"""Text without spaces, quotes and other characters that a shell or Slurm would interpret."""
Label = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=63)]
"""Name of an object in Kubernetes."""

_TIME = re.compile(r"^(?:(\d+)-)?(\d+):(\d\d):(\d\d)$")
TIME_HELP = "write HOURS:MINUTES:SECONDS or DAYS-HOURS:MINUTES:SECONDS in quotes, as '12:00:00' or '2-00:00:00'"
SHORTEST_MARGIN_S = 60
"""Minimum seconds before the time limit: Slurm sends a signal up to a minute early or late."""


def _refuse_number(value: Any) -> Any:
    """Refuse a number: YAML reads an unquoted 12:00:00 as one, and Slurm would read that number as minutes."""
    if isinstance(value, int):
        raise ValueError(f"is the number {value}, not a time; {TIME_HELP}")  # noqa: TRY004 - a mistake in the config
    return value


@dataclass(config=STRICT, kw_only=True)
class Container:
    """Container in which the nodes of a Slurm job run the sweep."""

    runtime: Literal["pyxis", "apptainer"] = "pyxis"
    """``pyxis``: NVIDIA's plugin of Slurm (``srun --container-image``); ``apptainer``: the program on each node."""
    image: Annotated[Word, Reach.LAUNCH]
    """Image with Python, Ray and Sweeps: ``nvcr.io#nvidia/pytorch:25.10-py3``, or a file."""
    mounts: Annotated[list[Word], Reach.LAUNCH] = Field(default_factory=list)
    """Further folders of the nodes to mount, as ``/data`` or ``/data:/inside``; the working folder, ``output_dir`` and
    those of ``--config-dir`` are always mounted."""


@dataclass(config=STRICT, kw_only=True)
class Slurm:
    """Job that ``submit --to slurm`` requests: nodes on which one Ray cluster runs for this sweep."""

    partition: Annotated[Word | None, Reach.LAUNCH] = None
    """Partition; default: Slurm's."""
    account: Annotated[Word | None, Reach.LAUNCH] = None
    """Account to charge; default: the user's."""
    qos: Annotated[Word | None, Reach.LAUNCH] = None
    """Quality of service; default: the account's."""
    time_limit: Annotated[str | None, BeforeValidator(_refuse_number), Reach.LAUNCH] = None
    """Time limit of the job, as ``'12:00:00'`` or ``'2-00:00:00'`` (two days); default: the partition's. A sweep may
    take longer: it saves its state before the limit, and continues in the next run of the job."""
    stop_before_limit_s: Annotated[int, Field(ge=SHORTEST_MARGIN_S, le=65535)] = 180
    """Seconds before the time limit at which the trials save their state and the job is put back into the queue."""
    nodes: PositiveInt = 1
    """Number of nodes."""
    cpus_per_node: PositiveInt | None = None
    """CPUs to reserve on each node; default: all with ``exclusive``, otherwise enough for the trials that run at once
    on ``gpus_per_node``. Workers with GPUs use more CPUs if there are more."""
    gpus_per_node: Annotated[int, Field(ge=0)] = 0
    """GPUs to reserve on each node."""
    memory_gib_per_node: PositiveInt | None = None
    """Memory to reserve on each node, in GiB; default: Slurm's."""
    exclusive: Flag = False
    """Whether the nodes run no other job at the same time."""
    options: Annotated[list[Word], Reach.LAUNCH] = Field(default_factory=list)
    """Further options of sbatch, as ``[--constraint=a100, --reservation=course]``."""
    modules: Annotated[list[Word], Reach.LAUNCH] = Field(default_factory=list)
    """Environment modules to load on the nodes, as ``[cuda/12.8]``."""
    setup: Annotated[list[str], Reach.LAUNCH] = Field(default_factory=list)
    """Lines of bash to run before Ray starts, as ``[source /software/activate.sh]``."""
    container: Annotated[Container | None, Reach.LAUNCH] = None
    """Container in which the sweep runs; default: none."""
    python: Annotated[Word | None, Reach.LAUNCH] = None
    """Python with Sweeps on the nodes; default: the one that runs ``submit``, or ``python3`` in a container."""
    temp_dir: Annotated[Word, Reach.LAUNCH] = "/tmp"  # noqa: S108 - a folder in it is made for each job
    """Folder on the nodes' own disks for Ray's session files. Keep it short: sockets have long names."""
    max_failures: Annotated[int, Field(ge=0)] = 3
    """Maximum number of times that the job is run again after a failure. Reaching the time limit, preemptions and lost
    nodes do not count."""
    singleton: Flag = False
    """Whether the job waits until earlier jobs of its name and user have ended."""
    job_name: Annotated[Word | None, Reach.LAUNCH] = None
    """Name of the job; default: the sweep's name, and with ``singleton`` the config's name."""
    mail_to: Annotated[Word | None, Reach.LAUNCH] = None
    """Address for Slurm's mails; default: no mail."""
    mail_on: list[Literal["BEGIN", "END", "FAIL", "REQUEUE", "TIME_LIMIT", "ALL"]] = Field(
        default_factory=lambda: ["END", "FAIL", "REQUEUE"]  # type: ignore[arg-type]
    )
    """Events for which Slurm sends mail."""

    def __post_init__(self) -> None:
        if self.time_limit is not None and self.seconds is None:
            raise ValueError(f"time_limit={self.time_limit}: {TIME_HELP}")
        if self.seconds is not None and self.seconds <= self.stop_before_limit_s:
            raise ValueError(
                f"time_limit={self.time_limit} is not longer than stop_before_limit_s={self.stop_before_limit_s}: the "
                "trials would never run; raise the limit, or lower stop_before_limit_s"
            )
        if bad := [each for each in self.options if not each.startswith("--")]:
            raise ValueError(f"options={bad}: options of sbatch begin with --, as in --constraint=a100")
        if any("\n" in line for line in self.setup):
            raise ValueError("setup: an entry contains a line break; make each line an entry of the list")

    @property
    def seconds(self) -> int | None:
        """The time limit in seconds; None if there is none or it is invalid."""
        found = _TIME.fullmatch(self.time_limit or "")
        if found is None:
            return None
        days, hours, minutes, seconds = (int(each or 0) for each in found.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


@dataclass(config=STRICT, kw_only=True)
class Pod:
    """Resources of one pod of a Ray cluster on Kubernetes."""

    cpus: PositiveInt = 2
    """CPUs of the pod."""
    memory_gib: PositiveInt = 8
    """Memory in GiB."""
    gpus: Annotated[int, Field(ge=0)] = 0
    """GPUs (``nvidia.com/gpu``)."""
    node_selector: Annotated[dict[str, str], Reach.LAUNCH] = Field(default_factory=dict)
    """Labels of the nodes on which the pod may run, as ``{cloud.google.com/gke-accelerator: nvidia-l4}``."""


@dataclass(config=STRICT, kw_only=True)
class Volume:
    """Volume of Kubernetes that all pods mount."""

    claim: Annotated[Label, Reach.LAUNCH]
    """Name of a PersistentVolumeClaim that several nodes can write to (``ReadWriteMany``)."""
    path: Annotated[str, Field(pattern=r"^/\S*$"), Reach.LAUNCH]
    """Folder at which the pods mount the volume."""


@dataclass(config=STRICT, kw_only=True)
class KubeRay:
    """Job that ``submit --to kuberay`` requests: pods on which one Ray cluster runs for this sweep."""

    image: Annotated[Word, Reach.LAUNCH]
    """Image of all pods, with the same Python, Ray and Sweeps as here."""
    namespace: Annotated[Label, Reach.LAUNCH] = "default"
    """Namespace of Kubernetes."""
    head: Pod = Field(default_factory=Pod)
    """Pod that runs the driver of the sweep; no trials run on it."""
    workers: Pod = Field(default_factory=Pod)
    """Pods that train."""
    nodes: PositiveInt = 2
    """Number of pods that train."""
    volumes: list[Volume] = Field(default_factory=list)
    """Volumes, one of which should hold ``output_dir``."""
    secrets: Annotated[list[Label], Reach.LAUNCH] = Field(default_factory=list)
    """Secrets whose entries become environment variables of the pods, as ``MLFLOW_TRACKING_PASSWORD``."""
    image_pull_secrets: Annotated[list[Label], Reach.LAUNCH] = Field(default_factory=list)
    """Secrets with which the image is pulled."""
    service_account: Annotated[Label | None, Reach.LAUNCH] = None
    """Service account of the pods; default: the namespace's."""
    queue: Annotated[Label | None, Reach.LAUNCH] = None
    """Queue of Kueue, which starts the job when its quota allows; default: none."""
    code: Literal["config_map", "image"] = "config_map"
    """Source of the working folder's modules and configs in the pods: a ConfigMap, which holds 1 MiB, or the image,
    whose working folder already has them."""
    max_failures: Annotated[int, Field(ge=0)] = 3
    """Maximum number of times that the job is run again, on new pods, after a failure."""
    keep_s: Annotated[int, Field(ge=0)] = 3600
    """Seconds for which a finished job of a CronJob stays visible. A RayJob stays until it is deleted; its pods end at
    once."""
    time_limit_hours: PositiveFloat | None = None
    """Hours after which Kubernetes ends the job; default: never."""
