"""Number, resources and placement of the workers of a group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from sweeps.runtime.shared_folder import SharedFolder
from sweeps.runtime.trials_at_once import Workers


@dataclass(frozen=True)
class Lanes:
    """Settings of a group that trains several trials at a time."""

    number: int
    """Number of trials at a time, or its maximum."""
    is_found_while_training: bool
    """Whether the number is found while trials train."""
    log_folder: str
    """Folder for the logs of all groups with lanes of the sweep."""
    shared: SharedFolder | None
    """The sweep's folder, which all workers must see."""
    memory_share: float
    """Part of its GPU's memory that each worker may use; without a GPU, of its machine's memory."""
    base: tuple[Any, ...]
    """Values of the trainings' configs that are the same for all of them; trials of another stage may differ."""


@dataclass(frozen=True)
class WorkerGroupSpec:
    """A trial's workers, and how they are started."""

    workers: Workers
    """Number, resources and placement of the workers, to check whether nodes have room for them."""
    use_gpu: bool
    resources_per_worker: dict[str, float]
    """Resources of each worker as Ray Train is asked for them."""
    avoid: tuple[str, ...] = field(compare=False)
    """Ids of nodes on which no worker may be placed; a change of these does not end a slot whose workers run on other
    nodes."""
    environment: dict[str, str]
    """Environment variables of the workers' processes, in addition to those of all processes of the sweep."""
    hang_timeout_s: float
    """Seconds of silence after which the workers count as hanging."""
    spare_processes: Literal["always", "after a failure", "never"]
    """Condition under which spare worker processes are started in advance."""
    cluster_grows: bool
    """Whether the cluster may get more nodes."""
    storage_path: str
    """Absolute folder, or URI, for Ray Train's own files."""
    lanes: Lanes | None = None
    """Settings of a group that trains several trials at a time; None for any other group."""
