"""The typed schema of a sweep. ``sweeps.compose`` reads ``conf/`` into it; nothing behind it sees a raw config.

Every field says what it is, with its unit; pydantic reports unknown keys, wrong types and values out of range,
all at once. What one training run needs is defined in ``sweeps_train.config``, which a worker reads too.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass

from sweeps.config.execution import Cluster, NonEmpty, Scaling, Tracking
from sweeps.config.search import Search
from sweeps.config.space import Distribution
from sweeps_train.config import (
    STRICT,
    CausalLM,
    CausalLMTask,
    Checkpoint,
    Data,
    FunctionConfig,
    FunctionTask,
    ImageClassificationTask,
    Model,
    NonNegativeFloat,
    Strategy,
    Train,
    TrainingConfig,
    check_fit,
)
from sweeps_train.config.reach import Reach as Reach

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=120), Reach.NOTHING]
AnyTask = Annotated[CausalLMTask | ImageClassificationTask | FunctionTask, Field(discriminator="kind")]

OF_OUR_TASKS = ("model", "data", "train", "strategy")
"""Sections that our own tasks need, and that a user's own function knows nothing of."""


@dataclass(config=STRICT, kw_only=True)
class Preflight:
    """The look at a user's own data and model before the first trial: lengths, NaN and infinite values, labels, and one
    forward pass on the CPU, in a process of its own while Ray starts."""

    timeout_s: NonNegativeFloat = 60.0
    """Seconds after which the sweep goes on without its result; 0 leaves it out."""


@dataclass(config=STRICT, kw_only=True)
class SweepConfig:
    """One sweep, whole: what a trial trains, and how the search goes over it."""

    name: Name
    """Start of the sweep's name, to which its starting time is added."""
    task: AnyTask
    model: Model | None = None
    data: Data | None = None
    train: Train | None = None
    strategy: Strategy | None = None
    checkpoint: Checkpoint
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seeds weights, data order, dropout and the search; a 32-bit number, since numpy takes no other."""
    search: Search
    scaling: Scaling
    tracking: Tracking
    cluster: Cluster
    space: Annotated[dict[str, Distribution], Reach.SPACE] = Field(default_factory=dict)
    """Dotted path of a value, or name of a group -> distribution."""
    preflight: Preflight = Field(default_factory=Preflight)
    output_dir: Annotated[NonEmpty, Reach.FOLDER] = "outputs"
    """Folder for checkpoints and Ray's files, one subfolder a sweep."""

    def __post_init__(self) -> None:
        if isinstance(self.task, FunctionTask):
            self._check_function()
        elif missing := [name for name in OF_OUR_TASKS if getattr(self, name) is None]:
            raise ValueError(
                f"{', '.join(missing)}: required by task.kind={self.task.kind}; choose one, "
                f"as {' and '.join(f'`{name}: OPTION`' for name in missing)} in the config's defaults"
            )
        else:
            assert self.model is not None and self.data is not None
            check_fit(self.task, self.model, self.data)

    def _check_function(self) -> None:
        given = [name for name in OF_OUR_TASKS if getattr(self, name) is not None]
        if given:
            which, them = ("these sections", "them") if len(given) > 1 else ("this section", "it")
            raise ValueError(
                f"{', '.join(given)}: task.kind=function ignores {which}; remove {them} "
                f"({' '.join(f'~{name}' for name in given)}), and give the function what it needs in task.arguments"
                f"{_right_kind(self.model)}"
            )
        if self.checkpoint.every is not None:
            raise ValueError(
                f"checkpoint.every={self.checkpoint.every}: a function saves whenever it reports a checkpoint; drop it"
            )

    @property
    def warm(self) -> bool:
        """Whether worker processes outlive a trial."""
        if self.scaling.isolation == "auto":
            return not isinstance(self.task, FunctionTask)
        return self.scaling.isolation == "warm"

    def training(self) -> TrainingConfig | FunctionConfig:
        """The part that a worker needs."""
        if isinstance(self.task, FunctionTask):
            return FunctionConfig(task=self.task, checkpoint=self.checkpoint, seed=self.seed)
        assert self.model is not None and self.data is not None
        assert self.train is not None and self.strategy is not None
        return TrainingConfig(
            task=self.task,
            model=self.model,
            data=self.data,
            train=self.train,
            strategy=self.strategy,
            checkpoint=self.checkpoint,
            seed=self.seed,
        )


def _right_kind(model: Model | None) -> str:
    """The kind of task that trains a model of the config."""
    if model is None:
        return ""
    kind = "causal_lm" if isinstance(model, CausalLM) else "image_classification"
    return f"; or, to train model.kind={model.kind}, use task={kind}"


SWEEP_CONFIG: TypeAdapter[SweepConfig] = TypeAdapter(SweepConfig)
"""Reads a ``SweepConfig`` from plain dicts."""
