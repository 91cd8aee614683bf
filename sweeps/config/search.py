"""The schema of a search: what is optimised, who suggests, who goes on, and when it is enough."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps.config.space import Finite
from sweeps_train.config import STRICT, NonNegativeFloat, PositiveFloat, PositiveInt
from sweeps_train.config.reach import Flag, Import, Reach, Text

Mode = Literal["min", "max"]

# --- samplers ---------------------------------------------------------------------------------------------


@dataclass(config=STRICT, kw_only=True)
class TPESampler:
    """Tree-structured Parzen estimator (Bergstra et al., 2011; multivariate: Falkner et al., 2018), by Optuna."""

    kind: Literal["tpe"]
    startup_trials: PositiveInt = 8
    """Random trials before the model is used."""


@dataclass(config=STRICT, kw_only=True)
class BOHBSampler:
    """TPE that learns from the highest rung with enough trials, as BOHB does (Falkner et al., 2018,
    https://arxiv.org/abs/1807.01774); made for Hyperband and ASHA."""

    kind: Literal["bohb"]
    startup_trials: PositiveInt = 8
    """Random trials before the model is used, and the number that a rung needs to be learned from."""


@dataclass(config=STRICT, kw_only=True)
class GPSampler:
    """Gaussian process with expected improvement, by Optuna: for few and costly trials (up to some hundreds).
    It learns from the trials that finished; conditional parameters are left to TPE."""

    kind: Literal["gp"]
    startup_trials: PositiveInt = 8
    """Random trials before the model is used."""


@dataclass(config=STRICT, kw_only=True)
class CmaEsSampler:
    """Covariance matrix adaptation (Hansen and Ostermeier, 2001), by the package cmaes through Optuna, of the
    trials that finished; for one objective. Choices and conditional parameters are left to TPE."""

    kind: Literal["cmaes"]
    startup_trials: PositiveInt = 1
    """Random trials before the model is used."""


@dataclass(config=STRICT, kw_only=True)
class NSGASampler:
    """Genetic search for several objectives, by Optuna: NSGA-II (Deb et al., 2002), or NSGA-III (Deb and Jain, 2014)
    for more than three."""

    kind: Literal["nsga2", "nsga3"]
    population: Annotated[int, Field(ge=2)] = 50
    """Trials of a generation."""


@dataclass(config=STRICT, kw_only=True)
class QMCSampler:
    """Quasi-Monte Carlo: points that cover the space more evenly than random ones, by scipy through Optuna.
    Conditional parameters and choices have their place in the sequence."""

    kind: Literal["qmc"]
    sequence: Literal["sobol", "halton"] = "sobol"
    """Sobol covers best after a power of two of trials."""


@dataclass(config=STRICT, kw_only=True)
class RandomSampler:
    """Independent random points."""

    kind: Literal["random"]


@dataclass(config=STRICT, kw_only=True)
class GridSampler:
    """Every combination, once, in a shuffled order; real-valued parameters need a ``step``."""

    kind: Literal["grid"]


@dataclass(config=STRICT, kw_only=True)
class BruteForceSampler:
    """Every combination, once, found by trying (define-by-run), by Optuna; real-valued parameters need a ``step``."""

    kind: Literal["brute_force"]


@dataclass(config=STRICT, kw_only=True)
class CustomSampler:
    """Any other sampler of Optuna, or of one's own: ``_target_(**arguments)``."""

    kind: Literal["custom"]
    target: Import = Field(alias="_target_")
    """Import path of a subclass of ``optuna.samplers.BaseSampler``, or of a function that returns one."""
    arguments: Annotated[dict[str, Any], Reach.ARGUMENTS] = Field(default_factory=dict)
    """Keyword arguments for it; ``seed`` is added where it takes one."""


Sampler = Annotated[
    TPESampler
    | BOHBSampler
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
"""What a scheduler counts a trial's progress in; ``seconds`` are seconds of training."""


@dataclass(config=STRICT, kw_only=True)
class AshaScheduler:
    """Asynchronous successive halving (Li et al., 2018, https://arxiv.org/abs/1810.05934): at each rung only
    the best 1/eta of the trials that reached it go on."""

    kind: Literal["asha"]
    resource: Resource = "evaluations"
    """Unit of the rungs."""
    grace: PositiveFloat = 1
    """What every trial gets: the first rung."""
    eta: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 3
    """Rungs are at grace, grace * eta, ...; one in eta goes on."""
    brackets: PositiveInt = 1
    """Number of sets of rungs, each with a later first rung."""


@dataclass(config=STRICT, kw_only=True)
class HyperbandScheduler:
    """Hyperband (Li et al., 2017, https://arxiv.org/abs/1603.06560): trials pause at a rung until all of their
    bracket have reached it, and the best 1/eta go on. With the sampler bohb this is BOHB."""

    kind: Literal["hyperband"]
    resource: Resource = "evaluations"
    """Unit of the rungs."""
    grace: PositiveFloat | None = None
    """What every trial gets, about: the first rung; default: what a trial has used at its first evaluation, where that
    follows from the config."""
    longest: PositiveFloat | None = None
    """What a whole trial takes, from which the rungs are counted down; default: where that follows from the config."""
    eta: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 3
    """One in eta goes on."""


@dataclass(config=STRICT, kw_only=True)
class MedianScheduler:
    """Median stopping (Golovin et al., 2017): a trial ends when its best value so far is worse than the median of the
    others' running averages at the same point."""

    kind: Literal["median"]
    resource: Resource = "evaluations"
    """Unit of ``grace``."""
    grace: PositiveFloat = 1
    """What every trial gets."""
    min_trials: PositiveInt = 3
    """Trials that must have come as far, before one is compared with them."""


@dataclass(config=STRICT, kw_only=True)
class PBTScheduler:
    """Population based training (Jaderberg et al., 2017, https://arxiv.org/abs/1711.09846): the worst trials go on from
    a checkpoint of the best, with changed values. The population is all of ``search.num_trials``."""

    kind: Literal["pbt"]
    resource: Resource = "evaluations"
    """Unit of ``interval``."""
    interval: PositiveFloat = 1
    """How often a trial may be changed."""
    quantile: Annotated[float, Field(gt=0, le=0.5)] = 0.25
    """Part of the population that is replaced, and that is copied."""
    resample_probability: Annotated[float, Field(ge=0, le=1)] = 0.25
    """How often a value is sampled anew rather than moved by a fifth, or to a neighbour."""
    mutate: list[Text] | None = None
    """Searched paths that change; default: those that can change in the middle of a training."""


@dataclass(config=STRICT, kw_only=True)
class PB2Scheduler:
    """Population based bandits (Parker-Holder et al., 2020, https://arxiv.org/abs/2002.02518): PBT whose new values
    come from a Gaussian process; only for ranges of numbers."""

    kind: Literal["pb2"]
    resource: Resource = "evaluations"
    """Unit of ``interval``."""
    interval: PositiveFloat = 1
    """How often a trial may be changed."""
    quantile: Annotated[float, Field(gt=0, le=0.5)] = 0.25
    """Part of the population that is replaced, and that is copied."""
    mutate: list[Text] | None = None
    """Searched paths that change; default: those that can change in the middle of a training."""


@dataclass(config=STRICT, kw_only=True)
class NoScheduler:
    """Every trial trains to its end."""

    kind: Literal["none"]


Scheduler = Annotated[
    AshaScheduler | HyperbandScheduler | MedianScheduler | PBTScheduler | PB2Scheduler | NoScheduler,
    Field(discriminator="kind"),
]

# --- when it is enough ------------------------------------------------------------------------------------


@dataclass(config=STRICT, kw_only=True)
class Cost:
    """A budget in money."""

    limit: PositiveFloat
    """In the currency of the prices."""
    per_gpu_hour: NonNegativeFloat = 0.0
    """Price of one GPU for an hour."""
    per_cpu_hour: NonNegativeFloat = 0.0
    """Price of one CPU for an hour."""

    def __post_init__(self) -> None:
        if not self.per_gpu_hour and not self.per_cpu_hour:
            raise ValueError("a cost needs a price: set per_gpu_hour, per_cpu_hour or both")


@dataclass(config=STRICT, kw_only=True)
class Plateau:
    """No trial has improved on the best for long."""

    trials: PositiveInt
    """Trials that have ended since."""
    min_change: NonNegativeFloat = 0.0
    """A smaller change is no improvement; in units of the metric."""


@dataclass(config=STRICT, kw_only=True)
class Stop:
    """When to end a search before ``num_trials`` are done. The budgets (hours, cost) end trials that run, too; at a
    target, a plateau or a bound no further trial starts, and those that run come to their end."""

    wall_hours: PositiveFloat | None = None
    """Hours since the sweep began, of all its runs together."""
    gpu_hours: PositiveFloat | None = None
    """Hours of GPUs that trials held."""
    cost: Cost | None = None
    """Money for what trials held."""
    target: Finite | None = None
    """A value of the metric that is good enough."""
    plateau: Plateau | None = None
    """No improvement for a number of trials."""
    expected_improvement: PositiveFloat | None = None
    """Stop when no point of the space is expected to improve on the best by more than this, in units of the metric,
    by a Gaussian process through the trials that finished."""


# --- the search -------------------------------------------------------------------------------------------


@dataclass(config=STRICT, kw_only=True)
class Limit:
    """Bounds of a reported metric, both allowed."""

    min: Finite | None = None
    max: Finite | None = None

    def __post_init__(self) -> None:
        if self.min is None and self.max is None:
            raise ValueError("a limit needs min, max or both")


@dataclass(config=STRICT, kw_only=True)
class Search:
    """What is optimised, with how many trials, and how the next one is chosen."""

    metric: Text | Annotated[list[Text], Field(min_length=1)]
    """A metric that the task reports, such as ``eval/loss``, or a list of several. A trial's value is the best it
    reported; of several objectives, what it reported when the first was best."""
    mode: Mode | list[Mode]
    """Whether a smaller or a larger value is better; for each of several metrics."""
    num_trials: PositiveInt
    """Trials to start; with the grid sampler at most so many."""
    sampler: Sampler
    scheduler: Scheduler
    stop: Stop = Field(default_factory=Stop)
    """When to end before that."""
    max_concurrent: PositiveInt | None = None
    """Trials at the same time; default: as many as fit into the cluster."""
    max_retries: Annotated[int, Field(ge=0)] = 1
    """How often a trial is started again, from its last checkpoint, after a failure. An error before the first report
    is retried only if it came from outside (out of memory, a lost worker, a connection, a disk), or if other trials
    have made reports and none has failed with that error before."""
    default_first: Flag = True
    """Try the config's own values first, so that the search starts from what is known to work."""
    points: Annotated[list[dict[str, Any]], Reach.POINTS] = Field(default_factory=list)
    """Points to try next: mappings of dotted paths to values; what a point leaves out is sampled."""
    warm_start: Annotated[list[str], Reach.SWEEPS] = Field(default_factory=list)
    """Names of earlier sweeps, whose finished trials the sampler may learn from."""
    duplicates: Flag = False
    """Train a point again that was trained already. Else a finite space ends when all of it was trained."""
    constraints: Annotated[list[str], Reach.CONSTRAINTS] = Field(default_factory=list)
    """Conditions between parameters, as ``train.global_batch_size * data.sequence_length <= 8192``: a point for which
    one is false is not trained."""
    limits: Annotated[dict[str, Limit], Reach.NOTHING] = Field(default_factory=dict)
    """Bounds on reported metrics, as ``{system/memory_mib: {max: 2000}}``: a trial that reports a value beyond
    one cannot be the best. The samplers tpe, bohb, gp, nsga2 and nsga3 learn to keep away."""
    avoid_failures: Flag = True
    """Keep away from where trials failed again and again (out of memory, diverged)."""

    def __post_init__(self) -> None:
        if len(self.metrics) != len(self.modes):
            raise ValueError(
                f"metric={self.metric} and mode={self.mode} must be as many; give one mode for each metric, as lists"
            )
        if len(set(self.metrics)) < len(self.metrics):
            raise ValueError(f"metric={self.metric} names one twice; name each once")

    @property
    def pauses_trials(self) -> bool:
        """Whether the scheduler lets trials pause, and go on later."""
        return self.scheduler.kind in ("hyperband", "pbt", "pb2")

    @property
    def judges_trials(self) -> bool:
        """Whether the scheduler may stop a trial at a report while it trains on."""
        return self.scheduler.kind in ("asha", "median")

    @property
    def copies_trials(self) -> bool:
        """Whether the scheduler lets a trial go on from another one's state."""
        return self.scheduler.kind in ("pbt", "pb2")

    @property
    def metrics(self) -> tuple[str, ...]:
        """All objectives; the first one is what schedulers and the best checkpoint go by."""
        return (self.metric,) if isinstance(self.metric, str) else tuple(self.metric)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Of each objective."""
        return (self.mode,) if isinstance(self.mode, str) else tuple(self.mode)
