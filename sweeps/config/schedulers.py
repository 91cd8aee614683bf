"""Schemas of the schedulers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config import STRICT, PositiveFloat, PositiveInt
from sweeps_train.config.reach import Flag, Text

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
class MedianScheduler(AshaScheduler):
    """Alias kept from 0.2: runs ``asha`` so that the better half of the trials at each rung continues."""

    kind: Literal["median"]  # type: ignore[assignment]
    eta: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 2
    """Reduction factor, as in ``asha``."""
    min_trials: PositiveInt = 3
    """Ignored."""


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
class _ByLearningCurves:
    """Rungs at which trials pause or stop, by a model of all learning curves."""

    kind: str
    resource: Resource = "evaluations"
    """Unit of the rungs."""
    grace: PositiveFloat = 1
    """Position of the first rung, which every trial reaches."""
    longest: PositiveFloat | None = None
    """Length of a whole trial; default: computed from the config if possible, else that of the first finished one."""
    eta: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 3
    """Distance between rungs, which are at grace, grace * eta, ...; while later values cannot be predicted yet, one
    in eta trials continues."""


@dataclass(config=STRICT, kw_only=True)
class FreezeThawScheduler(_ByLearningCurves):
    """Freeze-thaw (Swersky et al., 2014, https://arxiv.org/abs/1406.3896): trials pause at rungs, and the trial with
    the most expected improvement for its remaining cost continues, by a model of all learning curves so far. With the
    sampler curves this is ``search=sweeps``."""

    kind: Literal["freeze_thaw"]
    pauses: Flag = True
    """Whether trials that do not continue are paused. If not, they are stopped, and need no checkpoints."""


@dataclass(config=STRICT, kw_only=True)
class AutomaticScheduler(_ByLearningCurves):
    """The scheduler ``freeze_thaw``, which stops trials instead of pausing them if none of the config can be paused, or
    if measurements of the first trials show that pauses cost much."""

    kind: Literal["auto"]


@dataclass(config=STRICT, kw_only=True)
class _Population:
    """Trials that continue from checkpoints of the best."""

    kind: str
    resource: Resource = "evaluations"
    """Unit of ``interval``."""
    interval: PositiveFloat = 1
    """Distance between two possible changes of a trial, in units of ``resource``."""
    quantile: Annotated[float, Field(gt=0, le=0.5)] = 0.25
    """Size of the worst part of the population, which is replaced, and of the best part, which is copied, as a
    fraction."""
    mutate: list[Text] | None = None
    """Searched paths that change; default: all that can change during training."""


@dataclass(config=STRICT, kw_only=True)
class PBTScheduler(_Population):
    """Population based training (Jaderberg et al., 2017, https://arxiv.org/abs/1711.09846): the worst trials continue
    from checkpoints of the best, with changed values. The population has ``search.num_trials`` trials."""

    kind: Literal["pbt"]
    resample_probability: Annotated[float, Field(ge=0, le=1)] = 0.25
    """Probability that a value is sampled again instead of changed by a fifth, or to a neighbouring choice."""


@dataclass(config=STRICT, kw_only=True)
class PB2Scheduler(_Population):
    """Population based bandits (Parker-Holder et al., 2020, https://arxiv.org/abs/2002.02518): PBT with new values from
    a Gaussian process; only for ranges of numbers."""

    kind: Literal["pb2"]


@dataclass(config=STRICT, kw_only=True)
class NoScheduler:
    """Every trial trains to its end."""

    kind: Literal["none"]


Scheduler = Annotated[
    AutomaticScheduler
    | AshaScheduler
    | HyperbandScheduler
    | FreezeThawScheduler
    | MedianScheduler
    | PBTScheduler
    | PB2Scheduler
    | NoScheduler,
    Field(discriminator="kind"),
]
