"""One attempt at a trial, as a slot's workers receive it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sweeps.runtime.checkpoint_layout import Origin
from sweeps.runtime.pool_evaluator import EvaluationPlace
from sweeps.runtime.shared_folder import SharedFolder

if TYPE_CHECKING:
    from sweeps.config import AnyTraining


@dataclass(frozen=True)
class Assignment:
    """One attempt at a trial, for the workers of a slot."""

    trial: str
    attempt: int
    training: AnyTraining
    metrics: tuple[str, ...]
    modes: tuple[str, ...]
    checkpoint_folder: str
    """Folder of the trial's checkpoints; a URI if it is in an object store."""
    log_folder: str
    """Folder of the workers' logs; a URI if it is in an object store."""
    broker: Any
    """The broker's interface for workers, a ``WorkersSide``."""
    hang_timeout_s: float
    """Seconds of silence after which the workers count as hanging."""
    prepare_timeout_s: float
    """Seconds that the workers may take to prepare data and model."""
    origin: Origin | None = None
    """Checkpoint of another trial from which this one continues, if any."""
    largest_micro_batch: int | None = None
    """Largest micro batch that fits into memory, if an earlier attempt has found it."""
    waits_for_decision: bool = False
    """Whether workers wait after each report for the scheduler's decision, so that a trial is paused or copied in the
    state that the scheduler judged."""
    last_delivered: int | None = None
    """Step of the last report of earlier attempts that the driver has received; later measurements are posted again,
    because the newest checkpoint may be later still. None: it has received none; or the workers wait for decisions, and
    after a failure post only what they have logged since their last report."""
    shared: SharedFolder | None = None
    """The sweep's folder, which all workers must see; None if it is in an object store."""
    hourly: Mapping[str, float] = field(default_factory=dict)
    """Hourly cost of all workers, by the metric that reports it; empty without prices and pools."""
    spent: Mapping[str, float] = field(default_factory=dict)
    """Metrics of the trial's last report before it continued from ``origin``; its cost goes on from theirs."""
    evaluation: EvaluationPlace | None = None
    """Resources and nodes for evaluations of the trial's checkpoints; None: its workers evaluate."""
    failures: int = 0
    """Number of earlier failed attempts, set by the broker."""
    sweep: str = ""
    """Name of the sweep."""
    ends_within_s: float = 0.0
    """Seconds that the training may take to end after its workers have noticed the request."""
    memory_share: float | None = None
    """Part of its GPU's memory that each worker may use; without a GPU, of its machine's memory. None: unknown."""
    holds_checkpoints: bool = False
    """Whether reported checkpoints are held until they are copied into MLflow."""

    @property
    def key(self) -> tuple[str, int]:
        """The trial and the number of the attempt."""
        return self.trial, self.attempt
