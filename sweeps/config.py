"""The typed schema of a sweep. ``sweeps.compose`` reads ``conf/`` into it; nothing behind it sees a raw config.

Every field says what it is, with its unit; pydantic reports unknown keys, wrong types and values out of range,
all at once. What one training run needs is defined in ``sweeps_train.config``, which a worker reads too.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass

from sweeps_train.config import STRICT, NonNegativeFloat, PositiveFloat, PositiveInt, TrainingConfig

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=120)]

NonEmpty = Annotated[str, Field(min_length=1)]
Whole = Annotated[int, Field(gt=-(2**63), lt=2**63)]
Finite = Annotated[float, Field(allow_inf_nan=False)]

# --- space ------------------------------------------------------------------------------------------------

Condition = dict[str, Any]
"""Dotted path -> the value, or list of values, under which a parameter exists."""


@dataclass(config=STRICT, kw_only=True)
class FloatDistribution:
    """A real number between ``low`` and ``high``, both included."""

    type: Literal["float"]
    low: Finite
    high: Finite
    log: bool = False
    """Sample the logarithm evenly: for values that matter by their order of magnitude."""
    step: PositiveFloat | None = None
    """Only low, low + step, low + 2 step, ..."""
    when: Condition = Field(default_factory=dict)
    """The parameter exists only while these hold."""

    def __post_init__(self) -> None:
        _check_bounds(self)


@dataclass(config=STRICT, kw_only=True)
class IntDistribution:
    """A whole number between ``low`` and ``high``, both included."""

    type: Literal["int"]
    low: Whole
    high: Whole
    log: bool = False
    """Sample the logarithm evenly."""
    step: PositiveInt = 1
    """Only low, low + step, low + 2 step, ..."""
    when: Condition = Field(default_factory=dict)
    """The parameter exists only while these hold."""

    def __post_init__(self) -> None:
        _check_bounds(self)


@dataclass(config=STRICT, kw_only=True)
class CategoricalDistribution:
    """One of ``choices``; they may be lists or mappings, or names of a group's options."""

    type: Literal["categorical"]
    choices: Annotated[list[Any], Field(min_length=1)]
    when: Condition = Field(default_factory=dict)
    """The parameter exists only while these hold."""

    def __post_init__(self) -> None:
        for index, choice in enumerate(self.choices):
            if any(type(choice) is type(other) and choice == other for other in self.choices[:index]):
                raise ValueError(f"choices has {choice!r} twice; name each choice once")


Distribution = Annotated[FloatDistribution | IntDistribution | CategoricalDistribution, Field(discriminator="type")]


def _check_bounds(distribution: FloatDistribution | IntDistribution) -> None:
    low, high, step = distribution.low, distribution.high, distribution.step
    if low > high:
        raise ValueError(f"low={low} is above high={high}; swap them")
    if distribution.log and low <= 0:
        raise ValueError(f"low={low} has no logarithm; use a positive low, or log: false")
    if distribution.log and step not in (None, 1):
        raise ValueError(f"log and step={step} exclude each other; drop one")


# --- search -----------------------------------------------------------------------------------------------


@dataclass(config=STRICT, kw_only=True)
class TPESampler:
    """Tree-structured Parzen estimator (Bergstra et al., 2011; multivariate: Falkner et al., 2018), by Optuna."""

    kind: Literal["tpe"]
    startup_trials: PositiveInt = 8
    """Random trials before the model is used."""


@dataclass(config=STRICT, kw_only=True)
class RandomSampler:
    """Independent random points."""

    kind: Literal["random"]


@dataclass(config=STRICT, kw_only=True)
class GridSampler:
    """Every combination, once, in a shuffled order; real-valued parameters need a ``step``."""

    kind: Literal["grid"]


Sampler = Annotated[TPESampler | RandomSampler | GridSampler, Field(discriminator="kind")]


@dataclass(config=STRICT, kw_only=True)
class AshaScheduler:
    """Asynchronous successive halving (Li et al., 2018, https://arxiv.org/abs/1810.05934): at each rung only
    the best 1/eta of the trials that reached it go on."""

    kind: Literal["asha"]
    grace: PositiveInt = 1
    """Evaluations that every trial gets: the first rung."""
    eta: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 3
    """Rungs are at grace, grace * eta, ... evaluations; one in eta goes on."""
    brackets: PositiveInt = 1
    """Number of sets of rungs, each with a later first rung."""


@dataclass(config=STRICT, kw_only=True)
class NoScheduler:
    """Every trial trains to its end."""

    kind: Literal["none"]


Scheduler = Annotated[AshaScheduler | NoScheduler, Field(discriminator="kind")]


@dataclass(config=STRICT, kw_only=True)
class Search:
    """What is optimised, with how many trials, and how the next one is chosen."""

    metric: str
    """A metric that the task reports, such as ``eval/loss``. A trial's value is the best it reported."""
    mode: Literal["min", "max"]
    """Whether a smaller or a larger value is better."""
    num_trials: PositiveInt
    """Trials to start; with the grid sampler at most so many."""
    sampler: Sampler
    scheduler: Scheduler
    max_concurrent: PositiveInt | None = None
    """Trials at the same time; default: as many as fit into the cluster."""
    max_retries: Annotated[int, Field(ge=0)] = 1
    """How often a trial is started again, from its last checkpoint, after a failure."""
    default_first: bool = True
    """Try the config's own values first, so that the search starts from what is known to work."""
    points: list[dict[str, Any]] = Field(default_factory=list)
    """Points to try next: mappings of dotted paths to values; what a point leaves out is sampled."""


# --- where it runs, and where it is recorded ----------------------------------------------------------------


@dataclass(config=STRICT, kw_only=True)
class Scaling:
    """The workers of one trial."""

    num_workers: PositiveInt = 2
    """Processes that train one trial together."""
    use_gpu: bool | Literal["auto"] = "auto"
    """One GPU for each worker; auto: if the cluster has any."""
    resources_per_worker: dict[str, NonNegativeFloat] = Field(default_factory=dict)
    """What Ray reserves for a worker besides its GPU; default: one CPU."""
    isolation: Literal["warm", "process"] = "warm"
    """``warm``: worker processes outlive a trial, and the next one starts in them within milliseconds;
    ``process``: every trial has fresh ones."""
    hang_timeout_s: PositiveFloat = 1800.0
    """Seconds without a word from a trial's workers, once they train, after which they are taken to hang: the trial
    fails, and is retried in new ones."""


@dataclass(config=STRICT, kw_only=True)
class Tracking:
    """MLflow."""

    uri: NonEmpty = "sqlite:///mlflow.db"
    """Tracking server or store."""
    experiment: NonEmpty | None = None
    """MLflow experiment; default: the name of the conf."""
    checkpoints: Literal["copy", "reference", "none"] = "copy"
    """Copy a trial's kept checkpoints into MLflow, record only where they are, or neither."""


@dataclass(config=STRICT, kw_only=True)
class Cluster:
    """The Ray cluster that trials run on."""

    address: NonEmpty = "local"
    """``local`` starts Ray here, for this sweep alone; ``auto`` or an address joins a running cluster."""
    num_cpus: PositiveInt | None = None
    """Logical CPUs of a local cluster; default: the machine's."""
    num_gpus: Annotated[int, Field(ge=0)] | None = None
    """GPUs of a local cluster; default: the machine's."""


@dataclass(config=STRICT, kw_only=True)
class SweepConfig(TrainingConfig):
    """One sweep, whole: what a trial trains, and how the search goes over it."""

    name: Name
    """Start of the sweep's name, to which its starting time is added."""
    search: Search
    scaling: Scaling
    tracking: Tracking
    cluster: Cluster
    space: dict[str, Distribution] = Field(default_factory=dict)
    """Dotted path of a value, or name of a group -> distribution."""
    output_dir: NonEmpty = "outputs"
    """Folder for checkpoints and Ray's files, one subfolder a sweep."""

    def training(self) -> TrainingConfig:
        """The part that a worker needs."""
        return TrainingConfig(
            task=self.task,
            model=self.model,
            data=self.data,
            train=self.train,
            strategy=self.strategy,
            checkpoint=self.checkpoint,
            seed=self.seed,
        )


SWEEP_CONFIG: TypeAdapter[SweepConfig] = TypeAdapter(SweepConfig)
"""Reads a ``SweepConfig`` from plain dicts."""
