"""Schema of a search: objectives, sampler, scheduler and stop rules."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps.config.samplers import Sampler
from sweeps.config.schedulers import FreezeThawScheduler, Scheduler
from sweeps.config.space import Finite
from sweeps.config.warm_start import OtherTrials, WarmStart
from sweeps_train.config import STRICT, NonNegativeFloat, PositiveFloat, PositiveInt
from sweeps_train.config.reach import Flag, Reach, Text

Mode = Literal["min", "max"]
Power = Annotated[float, Field(ge=-4, le=4)]
KEPT = 5
"""Maximum number of best points that a stage keeps by default."""


@dataclass(config=STRICT, kw_only=True)
class Cost:
    """Budget in money."""

    limit: PositiveFloat
    """Maximum cost, in the currency of the prices."""
    per_gpu_hour: NonNegativeFloat = 0.0
    """Price per GPU and hour."""
    per_cpu_hour: NonNegativeFloat = 0.0
    """Price per CPU and hour."""


@dataclass(config=STRICT, kw_only=True)
class Plateau:
    """Rule that stops a search when the best value no longer improves."""

    trials: PositiveInt
    """Number of ended trials without an improvement."""
    min_change: NonNegativeFloat = 0.0
    """Minimum change that counts as an improvement, in units of the metric."""


@dataclass(config=STRICT, kw_only=True)
class Stop:
    """Rules that end a search before ``num_trials``. Budgets (hours, cost) also end running trials; with the other
    rules no further trial starts, and the running ones finish."""

    wall_hours: PositiveFloat | None = None
    """Maximum hours of the sweep, over all its sessions."""
    gpu_hours: PositiveFloat | None = None
    """Maximum GPU-hours of trials."""
    cost: Cost | None = None
    """Maximum cost of the resources that trials use."""
    target: Finite | None = None
    """Value of the metric that is good enough."""
    plateau: Plateau | None = None
    """Number of trials without an improvement."""
    expected_improvement: PositiveFloat | None = None
    """Minimum expected improvement, in units of the metric: the search stops when no point of the space exceeds it, by
    a Gaussian process fitted to the finished trials."""


@dataclass(config=STRICT, kw_only=True)
class Limit:
    """Inclusive bounds of a reported metric."""

    min: Finite | None = None
    """Smallest permitted value; default: none."""
    max: Finite | None = None
    """Largest permitted value; default: none."""

    def __post_init__(self) -> None:
        if self.min is None and self.max is None:
            raise ValueError("a limit needs min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min={self.min:g} is above max={self.max:g}, so that no value is allowed; swap them")


@dataclass(config=STRICT, kw_only=True)
class Stage:
    """Cheaper trainings with the sweep's space, sampler and scheduler, which precede the sweep's trials."""

    overrides: Annotated[list[Text], Field(min_length=1)]
    """Overrides that make a training cheaper, such as ``[train.max_steps=100, model=tiny_llama]``; of the sections
    task, model, data, train, strategy and checkpoint."""
    num_trials: PositiveInt
    """Number of trials of this stage."""
    keep: PositiveInt | None = None
    """Number of this stage's best points that the next stage, or after the last one the sweep, trains first; of similar
    points only the best. The values of a point in both stages show how far the orders agree. Default: 5, limited by the
    trials of both."""
    rescale: Annotated[dict[str, PositiveFloat | dict[str, Power]], Reach.NOTHING] = Field(default_factory=dict)
    """Searched numbers whose best value changes with the size of a training, by path: a factor from this stage to the
    next one (from the last stage, to the sweep), or powers of the ratio by which values of the config change, such as
    ``{train.lr: {model.width: -1}}``."""


@dataclass(config=STRICT, kw_only=True)
class Search:
    """Objectives, number of trials, and choice of the next trial."""

    metric: Text | Annotated[list[Text], Field(min_length=1)]
    """Metric that the task reports, such as ``eval/loss``, or a list of several. A trial's value is the best that it
    reported; with several objectives, the values of the report in which the first was best, and of equal ones the
    second."""
    mode: Mode | list[Mode]
    """Whether a smaller or a larger value is better; a list for several metrics."""
    value: Literal["best", "last"] | None = None
    """Report that gives a trial's value: the best or the last. Default: the best; with ``task.folds``, whose reports
    are means of more and more folds, the last."""
    num_trials: PositiveInt
    """Number of trials to start; with the grid sampler, the maximum number."""
    sampler: Sampler
    """Choice of the next point."""
    scheduler: Scheduler
    """Choice of the trials that continue."""
    stop: Stop = Field(default_factory=Stop)
    """Rules that end the search earlier."""
    max_concurrent: PositiveInt | None = None
    """Maximum number of trials at the same time; default: as many as fit into the cluster."""
    max_retries: Annotated[int, Field(ge=0)] = 1
    """Maximum number of times that a failed trial is started again, from its last checkpoint. An error before the
    first report is retried only if it has an external cause (out of memory, a lost worker, a connection, a disk), or
    if other trials have reported and none has failed with the same error."""
    default_first: Flag = True
    """Whether the first trial has the config's own values, so that the search starts from a known point."""
    points: Annotated[list[dict[str, Any]], Reach.POINTS] = Field(default_factory=list)
    """Points to try next: values by dotted path. Values that a point omits are sampled, except those under which its
    parameters exist."""
    warm_start: Annotated[list[WarmStart], Reach.SWEEPS] = Field(default_factory=list)
    """Names of earlier sweeps whose finished trials the sampler learns from; or an Optuna study, an MLflow experiment
    or a table of trials, each with its ``kind``: ``{kind: table, path: trials.csv, metric: loss}``."""
    duplicates: Flag = False
    """Whether a point may be trained more than once. If not, the search of a finite space ends when all points were
    trained."""
    constraints: Annotated[list[str], Reach.CONSTRAINTS] = Field(default_factory=list)
    """Conditions between parameters, such as ``train.global_batch_size * data.sequence_length <= 8192``. A point that
    violates one is not trained."""
    limits: Annotated[dict[str, Limit], Reach.NOTHING] = Field(default_factory=dict)
    """Bounds on reported metrics, such as ``{system/memory_mib: {max: 2000}}``. A trial that violates one cannot be the
    best. The samplers tpe, bohb, curves, gp, nsga2 and nsga3 learn to avoid violations."""
    confirm: Annotated[int, Field(ge=0)] = 0
    """Number of best trials that are trained again with other seeds after the search, two to five times each, so that
    the winner is not due to luck; its mean then has a confidence interval. 0: none."""
    stages: Annotated[list[Stage], Field(max_length=10)] = Field(default_factory=list)
    """Cheaper trainings that precede the sweep's trials, in this order: with fewer steps, a smaller model or shorter
    sequences. The best points of each stage are trained first in the next one, and the sampler weights a stage's trials
    by how well the measured orders agree."""
    avoid_failures: Flag = True
    """Whether to avoid regions of the space in which trials failed repeatedly (out of memory, diverged)."""

    def __post_init__(self) -> None:
        if len(self.metrics) != len(self.modes):
            raise ValueError(
                f"metric={self.metric} and mode={self.mode} must have the same length; give one mode for each metric, "
                "as lists"
            )
        if len(set(self.metrics)) < len(self.metrics):
            raise ValueError(f"metric={self.metric} has a duplicate; name each metric once")

    @property
    def must_pause(self) -> bool:
        """Whether the scheduler needs to pause trials and continue them later."""
        if isinstance(self.scheduler, FreezeThawScheduler):
            return self.scheduler.pauses
        return self.scheduler.kind in ("hyperband", "pbt", "pb2")

    @property
    def pauses_trials(self) -> bool:
        """Whether the scheduler pauses trials and continues them later, or may do so."""
        return self.must_pause or self.scheduler.kind == "auto"

    @property
    def judges_trials(self) -> bool:
        """Whether the scheduler may stop a trial at a report without pausing it."""
        return self.scheduler.kind in ("auto", "asha", "median") or (
            self.scheduler.kind == "freeze_thaw" and not self.must_pause
        )

    @property
    def copies_trials(self) -> bool:
        """Whether the scheduler may replace a trial's state by another trial's."""
        return self.scheduler.kind in ("pbt", "pb2")

    @property
    def other_trials(self) -> dict[str, OtherTrials]:
        """Trials of other programs in ``warm_start``, by config key."""
        return {
            f"search.warm_start.{index}": each
            for index, each in enumerate(self.warm_start)
            if not isinstance(each, str)
        }

    @property
    def metrics(self) -> tuple[str, ...]:
        """All objectives; the best checkpoint and all schedulers except freeze_thaw use the first one."""
        return (self.metric,) if isinstance(self.metric, str) else tuple(self.metric)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Mode of each objective."""
        return (self.mode,) if isinstance(self.mode, str) else tuple(self.mode)

    @property
    def kept(self) -> list[int]:
        """Number of best points of each stage that the next stage, or the search, trains first."""
        following = [*(stage.num_trials for stage in self.stages[1:]), self.num_trials]
        return [
            min(KEPT, stage.num_trials, after) if stage.keep is None else stage.keep
            for stage, after in zip(self.stages, following, strict=False)
        ]

    @property
    def objectives(self) -> str:
        """The objectives for messages: ``min of eval/loss``."""
        return " and ".join(f"{mode} of {metric}" for metric, mode in zip(self.metrics, self.modes, strict=True))
