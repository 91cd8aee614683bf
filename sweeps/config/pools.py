"""Schema of the pools of a sweep: kinds of nodes that its trials run on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config import STRICT, NonNegativeFloat, PositiveFloat
from sweeps_train.config.reach import Flag, Reach


@dataclass(config=STRICT, kw_only=True)
class Pool:
    """Kind of nodes on which trials run, such as those with A100 GPUs. A node that matches several pools belongs to the
    first of them."""

    accelerator_type: Annotated[str | None, Field(min_length=1), Reach.NOTHING] = None
    """Type of the nodes' GPUs, by Ray's name: ``A100``, ``L4``; default: ``scaling.accelerator_type``."""
    labels: Annotated[dict[str, str], Reach.NOTHING] = Field(default_factory=dict)
    """Labels of the pool's nodes, set by ``ray start --labels``, besides ``scaling.labels``."""
    use_gpu: Flag | Literal["auto"] | None = None
    """Whether each worker gets one GPU on the pool's nodes; default: ``scaling.use_gpu``."""
    resources_per_worker: Annotated[dict[str, NonNegativeFloat], Reach.NOTHING] = Field(default_factory=dict)
    """Resources of each worker on the pool's nodes; they replace resources of the same name in
    ``scaling.resources_per_worker``."""
    memory_gib: PositiveFloat | None = None
    """Memory of a worker on the pool's nodes in GiB: of its GPU, or of its share of a node without one. A trial that is
    expected to need more runs in another pool. Default: the minimum that its workers have reported."""
    per_gpu_hour: NonNegativeFloat | None = None
    """Price per GPU and hour; default: ``search.stop.cost.per_gpu_hour``."""
    per_cpu_hour: NonNegativeFloat | None = None
    """Price per CPU and hour; default: ``search.stop.cost.per_cpu_hour``."""
