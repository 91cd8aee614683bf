"""Typed schema of a sweep. ``sweeps.compose`` reads ``conf/`` into it; the rest of the code sees only these
dataclasses.

Every field is documented with its unit; pydantic reports unknown keys, wrong types and values out of range, all at
once. The schema of one training run is in ``sweeps_train.config``, which workers read, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, model_validator
from pydantic.dataclasses import dataclass

from sweeps.config.cluster import Cluster
from sweeps.config.scaling import Scaling, WorkerRange
from sweeps.config.schedulers import FreezeThawScheduler
from sweeps.config.search import Search
from sweeps.config.space import Distribution
from sweeps.config.sweep_name import SweepName
from sweeps.config.tracking import Tracking
from sweeps.constants import COST, GPU_HOURS
from sweeps.storage.location import is_remote
from sweeps_train.command.placeholders import config_values
from sweeps_train.config import (
    STRICT,
    CausalLMTask,
    Checkpoint,
    ClassificationTask,
    CommandConfig,
    CommandTask,
    Data,
    EstimatorConfig,
    EstimatorTask,
    FunctionConfig,
    FunctionTask,
    ImageClassificationTask,
    Model,
    NonNegativeFloat,
    RegressionTask,
    Strategy,
    TableData,
    Train,
    TrainingConfig,
    check_batch_split,
    check_fit,
    check_folds,
)
from sweeps_train.config.fields import NonEmpty, Seed
from sweeps_train.config.reach import Reach as Reach
from sweeps_train.config.sharing import shared_values
from sweeps_train.config.strategy import num_stages
from sweeps_train.reports.reported_metrics import SYSTEM_METRICS

AnyTask = Annotated[
    CausalLMTask
    | ImageClassificationTask
    | ClassificationTask
    | RegressionTask
    | EstimatorTask
    | FunctionTask
    | CommandTask,
    Field(discriminator="kind"),
]

UserTask = FunctionTask | CommandTask
"""Tasks that train with the user's own code."""
AnyTraining = TrainingConfig | FunctionConfig | CommandConfig | EstimatorConfig
"""Config of a training of any task, as workers receive it."""

UPLOADED_WITHIN_S = 600.0
"""Seconds for which an attempt to reach an unresponsive object store is repeated before it fails; also the maximum time
for an ending trial to upload its last checkpoint."""
TRAINING_SECTIONS = ("model", "data", "train", "strategy")
"""Sections that built-in tasks require, and that a user's own function does not have."""
IGNORED_SECTIONS = {"function": TRAINING_SECTIONS, "estimator": ("model", "train", "strategy")}
"""Sections that each kind of task ignores."""


@dataclass(config=STRICT, kw_only=True)
class Preflight:
    """Check of a user's own data and model before the first trial: lengths, NaN and infinite values, labels, and one
    forward pass on the CPU, in a separate process while Ray starts."""

    timeout_s: NonNegativeFloat = 60.0
    """Seconds after which the sweep continues without the result, not counting imports of libraries; 0 skips the
    check."""


@dataclass(config=STRICT, kw_only=True)
class SweepConfig:
    """Config of one sweep: the training of a trial, and the search."""

    name: Annotated[SweepName, Reach.NOTHING]
    """Beginning of the sweep's name; the time of its start is added."""
    task: AnyTask
    """Training of a trial, and the metrics that it reports."""
    model: Model | None = None
    """Model that is trained; not for a user's own function."""
    data: Data | None = None
    """Source of the samples; not for a user's own function."""
    train: Train | None = None
    """Training loop; not for a user's own function."""
    strategy: Strategy | None = None
    """Distribution of one training over its workers; not for a user's own function."""
    checkpoint: Checkpoint
    """Frequency and retention of checkpoints."""
    seed: Seed = 0
    """Seed of weights, data order, dropout and the search; a 32-bit number, since NumPy accepts no other."""
    search: Search
    """Objectives, number of trials, and choice of the next trial."""
    scaling: Scaling
    """Workers of one trial."""
    tracking: Tracking
    """Recording in MLflow."""
    cluster: Cluster
    """Ray cluster on which trials run."""
    space: Annotated[dict[str, Distribution], Reach.SPACE] = Field(default_factory=dict)
    """Distributions by dotted path of a value, or by name of a group."""
    vars: Annotated[dict[str, Any], Reach.NOTHING] = Field(default_factory=dict)
    """Values of your own that other values refer to, as ``${vars.NAME}``; each can be searched as ``vars.NAME``."""
    preflight: Preflight = Field(default_factory=Preflight)
    """Check of a user's own data and model before the first trial."""
    output_dir: Annotated[NonEmpty, Reach.FOLDER] = "outputs"
    """Folder for checkpoints and Ray's files, with one subfolder for each sweep. On a cluster, all nodes must share it,
    or it must be in an object store that all nodes reach: ``s3://BUCKET/FOLDER``, ``gs://...``, or any other address of
    an Arrow or fsspec file system."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_ignored_sections(cls, given: Any) -> Any:
        """Refuse sections that the task ignores. Runs first, since mistakes inside such a section would hide that it is
        ignored."""
        fields = given if isinstance(given, Mapping) else given.kwargs or {}
        kind = _kind(fields.get("task"))
        sections = [name for name in IGNORED_SECTIONS.get(kind or "", ()) if fields.get(name) is not None]
        if sections:
            which, them = ("these sections", "them") if len(sections) > 1 else ("this section", "it")
            raise ValueError(
                f"{', '.join(sections)}: task.kind={kind} ignores {which}; remove {them} "
                f"({' '.join(f'~{name}' for name in sections)}), and give the {kind} what it needs in task.arguments"
                f"{_suggest_task(_kind(fields.get('model')))}"
            )
        return given

    def __post_init__(self) -> None:
        if isinstance(self.task, UserTask):
            if self.checkpoint.every is not None:
                what = "function" if isinstance(self.task, FunctionTask) else "program"
                raise ValueError(
                    f"checkpoint.every={self.checkpoint.every}: a {what} itself decides when to save; remove it"
                )
        elif isinstance(self.task, EstimatorTask):
            self._check_estimator(self.task)
        elif missing := [name for name in TRAINING_SECTIONS if getattr(self, name) is None]:
            raise ValueError(
                f"{', '.join(missing)}: required by task.kind={self.task.kind}; choose one, "
                f"as {' and '.join(f'`{name}: OPTION`' for name in missing)} in the config's defaults"
            )
        else:
            assert self.model is not None and self.data is not None
            check_fit(self.task, self.model, self.data)

        self._check_prices()

    def hourly_cost(self, held: Mapping[str, float]) -> float:
        """Return the cost of resources per hour, in the currency of the prices; 0 without prices.

        Args:
            held: Amounts by name, such as ``{"CPU": 2.0, "GPU": 1.0}``, in the pool of ``scaling.pool``.
        """
        cost, pool = self.search.stop.cost, self.scaling.pools.get(self.scaling.pool or "")
        per_gpu, per_cpu = (cost.per_gpu_hour, cost.per_cpu_hour) if cost is not None else (0.0, 0.0)
        if pool is not None:
            per_gpu = per_gpu if pool.per_gpu_hour is None else pool.per_gpu_hour
            per_cpu = per_cpu if pool.per_cpu_hour is None else pool.per_cpu_hour
        return held.get("GPU", 0.0) * per_gpu + held.get("CPU", 0.0) * per_cpu

    def _check_prices(self) -> None:
        cost = self.search.stop.cost
        if cost is not None and not self.is_priced:
            raise ValueError(
                f"search.stop.cost.limit={cost.limit:g}: a cost needs a price: set search.stop.cost.per_gpu_hour, "
                "per_cpu_hour or both, or those of the pools in scaling.pools"
            )

    def _check_estimator(self, task: EstimatorTask) -> None:
        if not isinstance(self.data, TableData):
            given = "data" if self.data is None else f"data.kind={self.data.kind}"
            raise ValueError(  # noqa: TRY004 - a mistake in the config
                f"{given}: task.kind=estimator reads tables; use data=csv or data=parquet"
            )
        check_folds(task, self.data)
        if self.scaling.num_workers != 1:
            given = "a range" if self.scaling.is_elastic else str(self.scaling.num_workers)
            raise ValueError(
                f"scaling.num_workers={given}: an estimator is fitted by one worker; use "
                "scaling=single_worker, and for more threads scaling.resources_per_worker.CPU"
            )
        if self.checkpoint.every is not None:
            raise ValueError(
                f"checkpoint.every={self.checkpoint.every}: an estimator saves whenever it reports; remove it"
            )
        if task.folds is not None:
            if self.search.value == "best":
                raise ValueError(
                    f"search.value=best: with task.folds={task.folds} a report is the mean of the folds so far, so "
                    "that only the last one counts; remove search.value"
                )
            self.search.value = "last"

    def in_pool(self, name: str | None) -> SweepConfig:
        """Return the config of a trial that runs in the pool of this name; None: the sweep has no pools."""
        return self if name is None else replace(self, scaling=replace(self.scaling, pool=name))

    def without_pauses(self) -> SweepConfig:
        """Return the config of a trial that the scheduler may stop but never pauses."""
        stopping = FreezeThawScheduler(kind="freeze_thaw", pauses=False)
        return replace(self, search=replace(self.search, scheduler=stopping))

    def with_workers(self, number: int) -> SweepConfig:
        """Return the config of a trial with a fixed number of workers."""
        return replace(self, scaling=replace(self.scaling, num_workers=number))

    def worker_numbers(self) -> list[int]:
        """Return the numbers of workers that a trial may have, ascending: those in ``scaling.num_workers`` that divide
        the global batch and the strategy exactly; all of them for a user's function, which divides its own batches."""
        workers = self.scaling.num_workers
        if not isinstance(workers, WorkerRange):
            return [workers]
        numbers = range(workers.min, workers.max + 1)
        if self.loop is None or self.strategy is None:
            return [*numbers]
        return [each for each in numbers if _divides(each, self.loop, self.strategy)]

    @property
    def is_priced(self) -> bool:
        """Whether resources have a price, on all nodes or in some pools."""
        cost = self.search.stop.cost
        pools = any(pool.per_gpu_hour or pool.per_cpu_hour for pool in self.scaling.pools.values())
        return pools or (cost is not None and bool(cost.per_gpu_hour or cost.per_cpu_hour))

    @property
    def loop(self) -> Train | None:
        """Section ``train`` of a built-in task; None if the user's own code trains."""
        return None if isinstance(self.task, UserTask) else self.train

    @property
    def warm(self) -> bool:
        """Whether worker processes are reused for the next trial."""
        if self.scaling.isolation == "auto":
            return not isinstance(self.task, FunctionTask)
        return self.scaling.isolation == "warm"

    @property
    def spare_processes(self) -> Literal["always", "after a failure", "never"]:
        """Policy for starting spare worker processes: see ``scaling.spare_processes``."""
        if self.scaling.spare_processes != "auto":
            return self.scaling.spare_processes
        return "after a failure" if self.warm else "always"

    @property
    def ends_within_s(self) -> float:
        """Maximum seconds that a trial may take to end after it has noticed a request to stop."""
        upload_s = UPLOADED_WITHIN_S if is_remote(self.output_dir) else 0.0
        return upload_s + (self.task.grace_s if isinstance(self.task, CommandTask) else 0.0)

    @property
    def shared_values(self) -> tuple[Any, ...]:
        """Values that must be the same in all trials on the same workers; empty if trials do not share workers."""
        training = self.training() if self.scaling.lanes > 1 else None
        return shared_values(training) if isinstance(training, TrainingConfig) else ()

    def as_values(self) -> dict[str, Any]:
        """Return the config as nested dicts with the keys of its YAML."""
        values: dict[str, Any] = SWEEP_CONFIG.dump_python(self, by_alias=True)
        return values

    def as_document(self) -> dict[str, Any]:
        """Return the config as nested dicts with the keys of its YAML, and values that JSON has."""
        document: dict[str, Any] = SWEEP_CONFIG.dump_python(self, mode="json", by_alias=True)
        return document

    def training(self) -> AnyTraining:
        """Return the part of the config that workers need."""
        checkpoint = self.checkpoint
        if self.search.value == "last":  # reports are not compared, so the newest checkpoint is the best one
            # With times, evaluations save checkpoints only for the best.
            checkpoint = replace(checkpoint, keep=["best", "last"] if checkpoint.follows_times else ["last"])
        needed = _measured([*self.search.metrics, *self.search.limits])
        if isinstance(self.task, EstimatorTask):
            assert isinstance(self.data, TableData)
            needed = [name for name in needed if name in SYSTEM_METRICS]  # which others it has depends on the class
            return EstimatorConfig(task=self.task, data=self.data, checkpoint=checkpoint, seed=self.seed, needed=needed)
        if isinstance(self.task, FunctionTask):
            return FunctionConfig(
                task=self.task,
                checkpoint=checkpoint,
                seed=self.seed,
                needed=needed,
            )
        if isinstance(self.task, CommandTask):
            return CommandConfig(
                task=self.task,
                checkpoint=checkpoint,
                seed=self.seed,
                values=config_values(self.task, self.as_values())[0],
                objectives=_measured(self.search.metrics),
                limited=_measured(self.search.limits),
                saves_at_reports=self.search.pauses_trials and self.task.checkpoints is not None,
            )
        assert self.model is not None and self.data is not None
        assert self.train is not None and self.strategy is not None
        return TrainingConfig(
            task=self.task,
            model=self.model,
            data=self.data,
            train=self.train,
            strategy=self.strategy,
            checkpoint=checkpoint,
            seed=self.seed,
        )


def _measured(metrics: Iterable[str]) -> list[str]:
    """Return the metrics that the training itself reports, without those that workers add."""
    return [metric for metric in metrics if metric not in (COST, GPU_HOURS)]


def _divides(num_workers: int, train: Train, strategy: Strategy) -> bool:
    try:
        check_batch_split(train, strategy.replicas(num_workers), num_stages(strategy, num_workers))
    except ValueError:
        return False
    return True


def _kind(section: Any) -> str | None:
    """Return the kind of a section that is a mapping or its dataclass; None if it is not a text."""
    kind = section.get("kind") if isinstance(section, Mapping) else getattr(section, "kind", None)
    return kind if isinstance(kind, str) else None


def _suggest_task(model_kind: str | None) -> str:
    """Suggest the task that trains the config's kind of model."""
    if model_kind is None:
        return ""
    task = {"causal_lm": "causal_lm", "mlp": "classification"}.get(model_kind, "image_classification")
    return f"; or, to train model.kind={model_kind}, use task={task}"


COMMAND_TASK: TypeAdapter[CommandTask] = TypeAdapter(CommandTask)
"""Adapter that converts the section ``task`` of a program from and to plain dicts."""
SWEEP_CONFIG: TypeAdapter[SweepConfig] = TypeAdapter(SweepConfig)
"""Adapter that converts a ``SweepConfig`` from and to plain dicts."""

SWEEP_SECTIONS = {"name", "output_dir", "space", "search", "tracking", "cluster", "preflight"}
"""Keys that belong to the sweep and not to a trial, so that no value of theirs can be searched."""
