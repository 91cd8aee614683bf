"""Schema of a trial's workers: their number, resources and placement."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps.texts.suggestions import did_you_mean
from sweeps_train.config import STRICT, NonNegativeFloat, PositiveFloat, PositiveInt
from sweeps_train.config.fields import NonEmpty
from sweeps_train.config.reach import Flag, Reach

MOST_LANES = 16
"""Maximum number of trials that one group of workers trains at a time if the number is measured."""

PoolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=60), Reach.NOTHING]


@dataclass(config=STRICT, kw_only=True)
class WorkerRange:
    """Range of the number of workers of an elastic trial."""

    min: PositiveInt
    """Minimum number of workers, with which a trial starts while others wait."""
    max: PositiveInt
    """Maximum number of workers, to which a trial grows when no other trial needs them."""

    def __post_init__(self) -> None:
        if self.min >= self.max:
            raise ValueError(
                f"min={self.min} must be less than max={self.max}; for a fixed number use num_workers={self.max}"
            )


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


@dataclass(config=STRICT, kw_only=True)
class Scaling:
    """Workers of one trial."""

    num_workers: PositiveInt | WorkerRange = 2
    """Number of processes that train one trial together: a number, or ``{min: 2, max: 8}`` for elastic trials of
    built-in tasks and functions. An elastic trial starts on the workers that are free, gives some back when other
    trials wait, and takes more when none waits."""
    use_gpu: Flag | Literal["auto"] = "auto"
    """Whether each worker gets one GPU; auto: if the cluster has GPUs, or its autoscaler may add nodes with GPUs."""
    resources_per_worker: Annotated[dict[str, NonNegativeFloat], Reach.NOTHING] = Field(default_factory=dict)
    """Resources that Ray reserves for each worker in addition to its GPU. Default: one CPU; with a GPU, its share of
    the node's CPUs, at most 8, minus one that stays free. A worker has one thread (``OMP_NUM_THREADS``) per CPU."""
    placement: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK"
    """Placement of a trial's workers: ``PACK`` on as few nodes as possible, ``SPREAD`` on as many as possible,
    ``STRICT_PACK`` on one node, ``STRICT_SPREAD`` on different nodes. If a strict placement is impossible, the trial
    does not start."""
    accelerator_type: Annotated[NonEmpty | None, Reach.NOTHING] = None
    """Type of GPU to use, by Ray's name: ``A100``, ``H100``, ``L4``; default: any."""
    labels: Annotated[dict[str, str], Reach.NOTHING] = Field(default_factory=dict)
    """Labels that a node must have, set by ``ray start --labels``: ``{market-type: spot}``."""
    pools: Annotated[dict[PoolName, Pool], Reach.NOTHING] = Field(default_factory=dict)
    """Kinds of nodes for the trials of one sweep, by name: ``{a100: {accelerator_type: A100}, l4: {accelerator_type:
    L4}}``. Default: all nodes are alike."""
    pool: Annotated[NonEmpty | None, Reach.NOTHING] = None
    """Pool of a trial; it may be searched. Default: the cheapest pool with room in which the trial fits; without
    prices, the first such pool."""
    evaluation_pool: Annotated[NonEmpty | None, Reach.NOTHING] = None
    """Pool that evaluates the checkpoints of all trials, one at a time on each of its workers, while the trials' own
    workers continue training; no trial runs in it. For built-in tasks, with ``output_dir`` in a folder that all nodes
    share. Default: a trial's workers evaluate."""
    isolation: Literal["auto", "warm", "process"] = "auto"
    """``warm``: worker processes are reused, and the next trial starts in them within milliseconds; ``process``: every
    trial has new ones; auto: warm for built-in tasks, process for a user's function."""
    trials_per_group: Annotated[PositiveInt | Literal["auto"], Reach.NOTHING] = 1
    """Number of trials that one group of workers trains at a time on one frozen base model, each with its own adapters:
    for LoRA of ``task=causal_lm`` with ``strategy=ddp`` or ``fsdp``. This uses processors that one small batch leaves
    idle. ``auto``: measured while they train, up to 16; 1 if trials cannot share their workers."""
    measure_workers: Flag = False
    """Whether the sweep also chooses ``num_workers`` and, unless ``resources_per_worker`` sets ``GPU``, how many
    of them share a GPU: before the search it trains some steps with each choice, and takes the one with which all
    trials together make the most steps. Needs ``trials_per_group=auto``."""
    spare_processes: Literal["auto", "always", "never"] = "auto"
    """Whether each node keeps idle processes with torch imported, as many as a trial has workers there, so that later
    workers train sooner. ``auto``: if every trial has new processes, and otherwise once a trial has lost its workers.
    Elastic trials grow into such processes, unless ``never``. Each takes about 450 MB of memory."""
    hang_timeout_s: PositiveFloat = 1800.0
    """Seconds without any message from a trial's training workers after which they count as hanging: the trial fails,
    and is retried with new workers. Operations among the workers fail a minute later."""
    prepare_timeout_s: PositiveFloat = 14400.0
    """Seconds that workers may take to prepare a trial: to download, tokenize and load the data and model of a built-in
    task, or to wait until another node or another trial has done it; to import a user's function or estimator. Also
    seconds without a result for which a trial waits for its evaluations in ``evaluation_pool``.
    During this time, ``hang_timeout_s`` applies only to workers whose processes have stopped."""

    @property
    def lanes(self) -> int:
        """Maximum number of trials that one group of workers trains at a time."""
        return MOST_LANES if self.trials_per_group == "auto" else self.trials_per_group

    def in_pool(self, name: str | None) -> Scaling:
        """Return the scaling of a trial in a pool (None without pools), with the pool's settings in place of
        ``pools``."""
        if name is None:
            return self
        pool = self.pools[name]
        return replace(
            self,
            accelerator_type=pool.accelerator_type or self.accelerator_type,
            labels={**self.labels, **pool.labels},
            use_gpu=self.use_gpu if pool.use_gpu is None else pool.use_gpu,
            resources_per_worker={**self.resources_per_worker, **pool.resources_per_worker},
            pools={},
            pool=None,
            evaluation_pool=None,
        )

    @property
    def min_workers(self) -> int:
        """Minimum number of workers of a trial."""
        return self.num_workers.min if isinstance(self.num_workers, WorkerRange) else self.num_workers

    @property
    def is_elastic(self) -> bool:
        """Whether the number of a trial's workers may change while it trains."""
        return isinstance(self.num_workers, WorkerRange)

    @property
    def trial_pools(self) -> list[str]:
        """Names of the pools in which trials run."""
        return [name for name in self.pools if name != self.evaluation_pool]

    @property
    def placed(self) -> Scaling:
        """Scaling of a trial in its pool, or without one; ``pool`` must be set if there are pools."""
        return self.in_pool(self.pool)

    def __post_init__(self) -> None:
        for key, name in (("pool", self.pool), ("evaluation_pool", self.evaluation_pool)):
            if name is not None and name not in self.pools:
                hint = did_you_mean(name, self.pools) if self.pools else "; scaling.pools has none"
                raise ValueError(f"{key}={name}: there is no such pool{hint}")
        if self.evaluation_pool is not None:
            if self.pool == self.evaluation_pool:
                raise ValueError(f"pool={self.pool}: no trial runs in evaluation_pool; choose another pool")
            if not self.trial_pools:
                raise ValueError(
                    f"evaluation_pool={self.evaluation_pool}: trials need a pool, too; add one to scaling.pools"
                )
        for name in self.pools:
            try:
                self.in_pool(name)
            except ValueError as error:
                raise ValueError(f"pools.{name}: {error}") from None
        self._check_elastic()
        if self.accelerator_type is not None and self.use_gpu is False:
            raise ValueError(
                f"accelerator_type={self.accelerator_type} needs use_gpu=true; set it, or remove accelerator_type"
            )
        gpus = self.resources_per_worker.get("GPU", 1.0)
        if 0 < gpus < 1 and self.num_workers != 1 and self.placement != "STRICT_SPREAD":
            raise ValueError(
                f"resources_per_worker.GPU={gpus:g} with num_workers={self.num_workers}: workers of one trial would "
                "share a GPU, which NCCL refuses; use num_workers=1 (trials then share GPUs), whole GPUs, or "
                "placement=STRICT_SPREAD"
            )

    def _check_elastic(self) -> None:
        if not self.is_elastic:
            return
        if self.pools:
            raise ValueError("num_workers: a range cannot be combined with pools; give one number, or remove pools")
        if self.placement.startswith("STRICT"):
            kind = self.placement.removeprefix("STRICT_")
            raise ValueError(
                f"placement={self.placement}: the workers of an elastic trial (num_workers with min and max) are "
                f"placed wherever there is room; use {kind}, or one number"
            )
