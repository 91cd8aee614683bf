"""Schema of a search: objectives, sampler, scheduler and stop rules."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps.config.space import Finite
from sweeps.config.stages import Stage
from sweeps.config.warm_start import OtherTrials, WarmStart
from sweeps_train.config import STRICT, NonNegativeFloat, PositiveFloat, PositiveInt
from sweeps_train.config.reach import Flag, Import, Reach, Text

Mode = Literal["min", "max"]

# --- samplers ---------------------------------------------------------------------------------------------


@dataclass(config=STRICT, kw_only=True)
class TPESampler:
    """Tree-structured Parzen estimator (Bergstra et al., 2011; multivariate: Falkner et al., 2018), by Optuna."""

    kind: Literal["tpe"]
    startup_trials: PositiveInt = 8
    """Number of random trials before the model is used."""


@dataclass(config=STRICT, kw_only=True)
class BOHBSampler:
    """TPE that learns from the highest rung with enough trials, as in BOHB (Falkner et al., 2018,
    https://arxiv.org/abs/1807.01774); for Hyperband and ASHA."""

    kind: Literal["bohb"]
    startup_trials: PositiveInt = 8
    """Number of random trials before the model is used, and of trials on a rung before the model learns from it."""


@dataclass(config=STRICT, kw_only=True)
class PredictedSampler:
    """TPE that learns from predicted values at the highest rung, as far as earlier values are measured to tell them;
    for ASHA and Hyperband."""

    kind: Literal["predicted"]
    startup_trials: PositiveInt = 8
    """Number of random trials before the model is used, and of trials on a rung before its values are predicted."""


@dataclass(config=STRICT, kw_only=True)
class CurveSampler:
    """Gaussian process of all learning curves so far, which measures how far early values tell late ones; for any
    scheduler, and with freeze_thaw ``search=sweeps``. For one objective or several."""

    kind: Literal["curves"]
    startup_trials: PositiveInt = 8
    """Number of trials that have reported before the model is used; they are random."""


@dataclass(config=STRICT, kw_only=True)
class GPSampler:
    """Gaussian process with expected improvement, by Optuna: for few, expensive trials (up to a few hundred). Learns
    from finished trials; TPE samples conditional parameters."""

    kind: Literal["gp"]
    startup_trials: PositiveInt = 8
    """Number of random trials before the model is used."""


@dataclass(config=STRICT, kw_only=True)
class CmaEsSampler:
    """Covariance matrix adaptation (Hansen and Ostermeier, 2001), by the package cmaes through Optuna; for one
    objective. Learns from finished trials; TPE samples categorical and conditional parameters."""

    kind: Literal["cmaes"]
    startup_trials: PositiveInt = 1
    """Number of random trials before the model is used."""


@dataclass(config=STRICT, kw_only=True)
class NSGASampler:
    """Genetic algorithm for several objectives, by Optuna: NSGA-II (Deb et al., 2002), or NSGA-III (Deb and Jain, 2014)
    for more than three."""

    kind: Literal["nsga2", "nsga3"]
    population: Annotated[int, Field(ge=2)] = 50
    """Number of trials of a generation."""


@dataclass(config=STRICT, kw_only=True)
class QMCSampler:
    """Quasi-Monte Carlo: points that cover the space more evenly than random ones, by SciPy through Optuna. Includes
    conditional and categorical parameters."""

    kind: Literal["qmc"]
    sequence: Literal["sobol", "halton"] = "sobol"
    """Sequence of points; Sobol is best after a power of two of trials."""


@dataclass(config=STRICT, kw_only=True)
class RandomSampler:
    """Independent random points."""

    kind: Literal["random"]


@dataclass(config=STRICT, kw_only=True)
class GridSampler:
    """Every combination once, in random order; float parameters need a ``step``."""

    kind: Literal["grid"]


@dataclass(config=STRICT, kw_only=True)
class BruteForceSampler:
    """Every combination once, found during the search (define-by-run), by Optuna; float parameters need a ``step``."""

    kind: Literal["brute_force"]


@dataclass(config=STRICT, kw_only=True)
class CustomSampler:
    """Any other sampler of Optuna, or your own: ``_target_(**arguments)``."""

    kind: Literal["custom"]
    target: Import = Field(alias="_target_")
    """Import path of a subclass of ``optuna.samplers.BaseSampler``, or of a function that returns one."""
    arguments: Annotated[dict[str, Any], Reach.ARGUMENTS] = Field(default_factory=dict)
    """Keyword arguments of the sampler; ``seed`` is added if it accepts one."""


Sampler = Annotated[
    TPESampler
    | BOHBSampler
    | PredictedSampler
    | CurveSampler
    | GPSampler
    | CmaEsSampler
    | NSGASampler
    | QMCSampler
    | RandomSampler
    | GridSampler
    | BruteForceSampler
    | CustomSampler,
    Field(discriminator="kind"),
]

# --- schedulers -------------------------------------------------------------------------------------------

Resource = Literal["evaluations", "steps", "epochs", "samples", "tokens", "seconds"]
"""Unit in which a scheduler counts a trial's progress; ``seconds`` are seconds of training."""


@dataclass(config=STRICT, kw_only=True)
class AshaScheduler:
    """Asynchronous successive halving (Li et al., 2018, https://arxiv.org/abs/1810.05934): at each rung only the best
    1/eta of the trials that reached it continue."""

    kind: Literal["asha"]
    resource: Resource = "evaluations"
    """Unit of the rungs."""
    grace: PositiveFloat = 1
    """Position of the first rung, which every trial reaches."""
    eta: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 3
    """Reduction factor: rungs are at grace, grace * eta, ..., and one in eta trials continues."""
    brackets: PositiveInt = 1
    """Number of brackets, each with a later first rung."""


@dataclass(config=STRICT, kw_only=True)
class HyperbandScheduler:
    """Hyperband (Li et al., 2017, https://arxiv.org/abs/1603.06560): trials pause at a rung until all trials of their
    bracket have reached it, and the best 1/eta continue. With the sampler bohb this is BOHB."""

    kind: Literal["hyperband"]
    resource: Resource = "evaluations"
    """Unit of the rungs."""
    grace: PositiveFloat | None = None
    """Approximate position of the first rung; default: a trial's first evaluation, if it follows from the config."""
    longest: PositiveFloat | None = None
    """Length of a whole trial, from which the rungs are counted down; default: computed from the config if possible."""
    eta: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 3
    """Reduction factor: one in eta trials continues."""


@dataclass(config=STRICT, kw_only=True)
class FreezeThawScheduler:
    """Freeze-thaw (Swersky et al., 2014, https://arxiv.org/abs/1406.3896): trials pause at rungs, and whichever is
    expected to improve most on the best for what it still costs goes on, by a model of all learning curves so far. With
    the sampler curves this is ``search=sweeps``."""

    kind: Literal["freeze_thaw"]
    resource: Resource = "evaluations"
    """Unit of the rungs."""
    grace: PositiveFloat = 1
    """Position of the first rung, which every trial reaches."""
    longest: PositiveFloat | None = None
    """Length of a whole trial; default: computed from the config if possible, else that of the first finished one."""
    eta: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 3
    """Distance between rungs, which are at grace, grace * eta, ...; until later values can be predicted, one in eta
    trials continues."""


@dataclass(config=STRICT, kw_only=True)
class MedianScheduler:
    """Median stopping (Golovin et al., 2017): a trial ends when its best value so far is worse than the median of the
    other trials' running averages at the same point."""

    kind: Literal["median"]
    resource: Resource = "evaluations"
    """Unit of ``grace``."""
    grace: PositiveFloat = 1
    """Minimum length of every trial."""
    min_trials: PositiveInt = 3
    """Number of other trials that must have reached the same point for a comparison."""


@dataclass(config=STRICT, kw_only=True)
class PBTScheduler:
    """Population based training (Jaderberg et al., 2017, https://arxiv.org/abs/1711.09846): the worst trials continue
    from checkpoints of the best, with changed values. The population has ``search.num_trials`` trials."""

    kind: Literal["pbt"]
    resource: Resource = "evaluations"
    """Unit of ``interval``."""
    interval: PositiveFloat = 1
    """Interval between possible changes of a trial."""
    quantile: Annotated[float, Field(gt=0, le=0.5)] = 0.25
    """Fraction of the population that is replaced, and fraction that is copied."""
    resample_probability: Annotated[float, Field(ge=0, le=1)] = 0.25
    """Probability that a value is sampled again instead of changed by a fifth, or to a neighbouring choice."""
    mutate: list[Text] | None = None
    """Searched paths that change; default: all that can change during training."""


@dataclass(config=STRICT, kw_only=True)
class PB2Scheduler:
    """Population based bandits (Parker-Holder et al., 2020, https://arxiv.org/abs/2002.02518): PBT with new values from
    a Gaussian process; only for ranges of numbers."""

    kind: Literal["pb2"]
    resource: Resource = "evaluations"
    """Unit of ``interval``."""
    interval: PositiveFloat = 1
    """Interval between possible changes of a trial."""
    quantile: Annotated[float, Field(gt=0, le=0.5)] = 0.25
    """Fraction of the population that is replaced, and fraction that is copied."""
    mutate: list[Text] | None = None
    """Searched paths that change; default: all that can change during training."""


@dataclass(config=STRICT, kw_only=True)
class NoScheduler:
    """Every trial trains to its end."""

    kind: Literal["none"]


Scheduler = Annotated[
    AshaScheduler
    | HyperbandScheduler
    | FreezeThawScheduler
    | MedianScheduler
    | PBTScheduler
    | PB2Scheduler
    | NoScheduler,
    Field(discriminator="kind"),
]

# --- stop rules -------------------------------------------------------------------------------------------


@dataclass(config=STRICT, kw_only=True)
class Cost:
    """Budget in money."""

    limit: PositiveFloat
    """Maximum cost, in the currency of the prices."""
    per_gpu_hour: NonNegativeFloat = 0.0
    """Price of one GPU for an hour."""
    per_cpu_hour: NonNegativeFloat = 0.0
    """Price of one CPU for an hour."""


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
    """Maximum hours of GPUs that trials use."""
    cost: Cost | None = None
    """Maximum cost of the resources that trials use."""
    target: Finite | None = None
    """Value of the metric that is good enough."""
    plateau: Plateau | None = None
    """Number of trials without an improvement."""
    expected_improvement: PositiveFloat | None = None
    """Stop when no point of the space has a larger expected improvement, in units of the metric, by a Gaussian process
    fitted to the finished trials."""


# --- the search -------------------------------------------------------------------------------------------


@dataclass(config=STRICT, kw_only=True)
class Limit:
    """Inclusive bounds of a reported metric."""

    min: Finite | None = None
    """Smallest value that is allowed; default: none."""
    max: Finite | None = None
    """Largest value that is allowed; default: none."""

    def __post_init__(self) -> None:
        if self.min is None and self.max is None:
            raise ValueError("a limit needs min, max or both")


@dataclass(config=STRICT, kw_only=True)
class Search:
    """Objectives, number of trials, and choice of the next trial."""

    metric: Text | Annotated[list[Text], Field(min_length=1)]
    """Metric that the task reports, such as ``eval/loss``, or a list of several. A trial's value is the best that it
    reported; with several objectives, the values of the report in which the first was best."""
    mode: Mode | list[Mode]
    """Whether a smaller or a larger value is better; a list for several metrics."""
    value: Literal["best", "last"] | None = None
    """Report that a trial's value is of: the best one, or the last. Default: the best one; with ``task.folds``, whose
    reports are means of more and more folds, the last."""
    num_trials: PositiveInt
    """Number of trials to start; with the grid sampler the maximum number."""
    sampler: Sampler
    """Choice of the next point."""
    scheduler: Scheduler
    """Choice of the trials that continue."""
    stop: Stop = Field(default_factory=Stop)
    """Rules that end the search earlier."""
    max_concurrent: PositiveInt | None = None
    """Maximum number of trials at the same time; default: as many as fit into the cluster."""
    max_retries: Annotated[int, Field(ge=0)] = 1
    """Maximum number of times that a failed trial is started again, from its last checkpoint. An error before the first
    report is retried only if it has an external cause (out of memory, a lost worker, a connection, a disk), or if other
    trials have reported and none has failed with the same error."""
    default_first: Flag = True
    """Whether the first trial has the config's own values, so that the search starts from a known point."""
    points: Annotated[list[dict[str, Any]], Reach.POINTS] = Field(default_factory=list)
    """Points to try next: values by dotted path; values that a point omits are sampled."""
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
    best. The samplers tpe, bohb, predicted, curves, gp, nsga2 and nsga3 learn to avoid violations."""
    confirm: Annotated[int, Field(ge=0)] = 0
    """Number of best trials that are trained again with other seeds after the search, two to five times each, so that
    the winner is not one of luck; its mean has a confidence interval then. 0: none."""
    stages: Annotated[list[Stage], Field(max_length=10)] = Field(default_factory=list)
    """Cheaper trainings that come before those of the sweep, in this order: with fewer steps, a smaller model or
    shorter sequences. The best points of each are trained first in the next one, and the sampler learns from its trials
    as far as the orders are measured to agree."""
    avoid_failures: Flag = True
    """Whether to avoid regions of the space in which trials failed repeatedly (out of memory, diverged)."""

    def __post_init__(self) -> None:
        if len(self.metrics) != len(self.modes):
            raise ValueError(
                f"metric={self.metric} and mode={self.mode} must be as many; give one mode for each metric, as lists"
            )
        if len(set(self.metrics)) < len(self.metrics):
            raise ValueError(f"metric={self.metric} names one twice; name each once")

    @property
    def pauses_trials(self) -> bool:
        """Whether the scheduler pauses trials and continues them later."""
        return self.scheduler.kind in ("hyperband", "freeze_thaw", "pbt", "pb2")

    @property
    def judges_trials(self) -> bool:
        """Whether the scheduler may stop a trial at a report without pausing it."""
        return self.scheduler.kind in ("asha", "median")

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
        """All objectives; the best checkpoint, and schedulers but freeze_thaw, use the first one."""
        return (self.metric,) if isinstance(self.metric, str) else tuple(self.metric)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Mode of each objective."""
        return (self.mode,) if isinstance(self.mode, str) else tuple(self.mode)

    @property
    def objectives(self) -> str:
        """The objectives for messages: ``min of eval/loss``."""
        return " and ".join(f"{mode} of {metric}" for metric, mode in zip(self.metrics, self.modes, strict=True))
