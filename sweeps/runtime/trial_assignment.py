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
    metric: str
    mode: str
    checkpoint_folder: str
    """Folder of the trial's checkpoints; a URI if it is in an object store."""
    log_folder: str
    """Folder of its workers' logs; likewise."""
    origin: Origin | None
    """Checkpoint of another trial from which this one continues, if it has taken over that trial's state."""
    largest_micro_batch: int | None
    """Largest micro batch that fits into memory, if an earlier attempt has found that out."""
    waits_for_decision: bool
    """Whether workers wait after each report until the scheduler has decided on it, so that a trial is paused or copied
    in the state that was judged."""
    last_delivered: int | None
    """Step of the last report of earlier attempts that the driver has received. What was measured from there
    on is posted again, since the newest checkpoint may be later. None: nothing is posted again."""
    broker: Any
    """A ``WorkersSide``."""
    hang_timeout_s: float
    """Seconds of silence after which the workers count as hanging."""
    prepare_timeout_s: float
    """Seconds that the workers may take to prepare data and model."""
    shared: SharedFolder | None = None
    """The sweep's folder, which all workers must see; None if it is in an object store."""
    hourly: Mapping[str, float] = field(default_factory=dict)
    """Cost of all workers for an hour, by the metric that reports it; empty without prices and pools."""
    evaluation: EvaluationPlace | None = None
    """Resources and nodes for evaluations of its checkpoints; None: its workers evaluate."""
    failures: int = 0
    """Set by the broker: number of earlier attempts that have failed."""
    sweep: str = ""
    """Name of the sweep."""
    ends_within_s: float = 0.0
    """Seconds that the training may take to end when it is asked to, besides the time until its workers notice."""
    memory_share: float | None = None
    """Part of its GPU's memory that each worker may use, or of its machine's without a GPU; None: not known."""
    holds_checkpoints: bool = False
    """Whether reported checkpoints are held until they are copied into MLflow."""
