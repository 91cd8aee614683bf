"""Events of a trial, which workers post to the broker and the driver reads there."""

from __future__ import annotations

from dataclasses import dataclass, field

from sweeps.runtime.checkpoint_layout import Origin
from sweeps.worker_error import WorkerError


@dataclass(frozen=True)
class Log:
    """Training metrics at a step, only for tracking."""

    trial: str
    attempt: int
    step: int
    metrics: dict[str, float]
    timestamp_ms: int


@dataclass(frozen=True)
class Report(Log):
    """Result of an evaluation, used by the scheduler and the sampler as well as for tracking."""

    progress: dict[str, float] = field(default_factory=dict)
    """Progress so far as ``steps``, ``epochs``, ``samples``, ``tokens`` and ``seconds``; without those that the
    training does not count."""
    checkpoint: str | None = None
    """Folder of a complete checkpoint of this step."""
    held: str | None = None
    """Copy of the checkpoint that stays until MLflow has received it, even if the training deletes the original."""
    saved: bool = False
    """Whether a checkpoint of this step was saved; a checkpoint that is being uploaded to an object store is not
    announced yet."""
    done: bool = False
    """Whether the training has reached its end."""

    @property
    def competes(self) -> bool:
        """Whether the report is a result of training; an evaluation before the first step is not."""
        return self.step > 0 or self.done


@dataclass(frozen=True)
class Saved(Log):
    """Checkpoint that was saved after the report of its step, or between two reports; only for tracking.

    ``metrics`` are those reported at the checkpoint's step; empty if there are none.
    """

    checkpoint: str = ""
    """Folder of the complete checkpoint."""
    held: str | None = None
    """Copy of the checkpoint that stays until MLflow has received it."""


@dataclass(frozen=True)
class Ended:
    """End of an attempt: all workers have finished the trial, or are gone."""

    trial: str
    attempt: int
    error: str | None = None
    """Reason in one line, if the attempt failed."""
    failure: WorkerError | None = None
    """Error of the worker that caused the failure."""
    others: tuple[WorkerError, ...] = ()
    """Errors of the other workers, in order of arrival."""
    flight_records: tuple[str | None, ...] = ()
    """Last collective operations of each hanging worker, by rank, as JSON; None if it has recorded none."""
    moved: str | None = None
    """Set by the broker: reason why the trial continues with other workers, without having failed."""
    halved_to: int | None = None
    """Micro batch of the next attempt, halved because a device ran out of memory in a training whose workers wait for
    each other."""
    suspected: tuple[str, ...] = ()
    """Set by the broker: ids of the nodes to check, since one may have caused the failure."""
    saved_step: int | None = None
    """Step of the trial's newest checkpoint when its workers had finished; None if there is none, or if they were lost.
    A checkpoint that was saved because the workers were asked to stop belongs to no evaluation and is not announced."""
    memory_mib: tuple[float, ...] = ()
    """Memory in use by each worker and on its GPU after the trial, by rank."""
    timestamp_ms: int = 0
    """Set by the broker: time at which it received the event."""

    @property
    def is_failure(self) -> bool:
        """Whether the attempt has failed and the trial does not continue on its own."""
        return self.error is not None and self.moved is None and self.halved_to is None


@dataclass(frozen=True)
class Started:
    """Start of training by the workers of an attempt."""

    trial: str
    attempt: int
    timestamp_ms: int
    origin: Origin | None = None
    """Checkpoint of another trial from which this one continues, if any."""
    assigned_ms: int = 0
    """Set by the broker: time at which the trial was given to the slot."""
    workers: tuple[str, ...] = ()
    """Set by the broker: ``host`` or ``host/gpu`` of each worker, by rank."""


@dataclass(frozen=True)
class Note:
    """One line about a trial for the user."""

    trial: str
    attempt: int
    text: str


@dataclass(frozen=True)
class Waiting:
    """Notice that a trial's workers find no room on the cluster, because others use its resources."""

    trial: str
    attempt: int


Event = Log | Report | Saved | Ended | Started | Note | Waiting
